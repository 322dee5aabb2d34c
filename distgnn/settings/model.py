"""Settings of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, get_args

from distgnn.settings.fields import FINITE, SHARE, Bound, at_least, flag
from distgnn.settings.names import (
    ActivationName,
    Aggregator,
    Degrees,
    DtypeName,
    EdgeFeatures,
    JumpingName,
    ModelName,
    NormName,
    RelationNorm,
)

MODEL_NAMES = tuple(name for name in get_args(ModelName) if name != "own")
"""Names that --model takes; a module that the user wrote comes from Python alone."""
_ALPHA = Bound("above 0 and at most 1", lambda value: 0 < value <= 1)


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Shape of a model, apart from the widths that the data set gives.

    `layers`, `hops` and `input_dropout` have defaults here that a kind of model may replace where
    the command line leaves them out; see `Kind.defaults`.
    """

    GROUP: ClassVar[str] = "model"

    model: ModelName = flag(
        "sage",
        "sage, gcn, gat, gatv2, gin, sgc or appnp; of graphs with types of edges, rgcn or "
        "rsage (default: %(default)s)",
        choices=MODEL_NAMES,
        is_common=True,
    )
    own: str = ""
    """Name of the module that the user wrote; empty for other models."""
    aggregator: Aggregator = flag("mean", "of sage: mean, gcn, max or pool (default: %(default)s)")
    hidden: int = flag(
        64,
        "width; of gat and gatv2, of each head (default: %(default)s)",
        at_least(1),
        metavar="H",
        is_common=True,
    )
    heads: int = flag(
        4,
        "of gat, gatv2 (default: %(default)s)",
        at_least(1),
        metavar="K",
    )
    last_heads: int = flag(
        0,
        "of gat, gatv2: heads of the layer that gives the classes (default: as --heads)",
        at_least(0),
        metavar="K",
    )
    attention_dropout: float = flag(
        0.0, "of gat and gatv2: of the weights of edges (default: %(default)s)", SHARE, metavar="D"
    )
    edge_features: EdgeFeatures = flag(
        "auto",
        "of gat, gatv2 and gin: whether layers read the features of edges (default: use, "
        "where the graph has some)",
        metavar="use|ignore",
    )
    degrees: Degrees = flag(
        "in",
        "of gcn, sgc and appnp: an edge is divided by the in-degrees of both its ends (as PyG "
        "does), or by the out-degree of its source (as DGL does) (default: %(default)s)",
        metavar="in|out-in",
    )
    hops: int = flag(
        2,
        "of sgc and appnp: edges that a layer propagates over (default: 2, of appnp 10)",
        at_least(1),
        metavar="K",
        varies=True,
    )
    alpha: float = flag(
        0.1,
        "of appnp: share of a vertex's own row in each hop (default: %(default)s)",
        _ALPHA,
        metavar="A",
    )
    eps: float = flag(
        0.0, "of gin: a vertex's own row counts 1 + E (default: %(default)s)", FINITE, metavar="E"
    )
    bases: int = flag(
        0,
        "of rgcn and rsage: maps that those of all relations are made of; not of the "
        "first layer of a graph without features (default: one each)",
        at_least(0),
        metavar="B",
    )
    relation_norm: RelationNorm = flag(
        "relation",
        "of rgcn and rsage: a vertex's sum over a relation is divided by its in-edges of that "
        "relation, by all of them, or by nothing (default: %(default)s)",
        metavar="relation|all|none",
    )
    learn_eps: bool = flag(False, "of gin: E is a weight and starts there")
    layers: int = flag(
        2,
        "convolutions; of appnp, dense layers (default: 2, of sgc 1)",
        at_least(1),
        metavar="L",
        varies=True,
        is_common=True,
    )
    dropout: float = flag(
        0.5,
        "share of hidden values that a step leaves out (default: %(default)s)",
        SHARE,
        metavar="D",
        is_common=True,
    )
    input_dropout: float = flag(
        0.0,
        "of the features (default: 0 for sage, gin, sgc, rgcn and rsage, else as --dropout: "
        "as in their papers)",
        SHARE,
        metavar="D",
        varies=True,
    )
    activation: ActivationName = flag("relu", "relu or elu (default: %(default)s)")
    norm: NormName = flag("none", "none, batch or layer (default: %(default)s)", is_common=True)
    residual: bool = flag(False, "add a hidden layer's input to its output")
    residual_map: bool = flag(False, "of --residual: map it linearly, always")
    jumping: JumpingName = flag(
        "none", "a linear layer reads cat or max of all layers, or the last (default: none)"
    )
    activations_dtype: DtypeName = flag(
        "fp32",
        "how rows between layers, and their gradients, are stored and sent; weights and sums "
        "stay fp32, but products of such rows round their weights (default: %(default)s)",
        metavar="fp32|bf16",
    )
