"""The flags that say what a model looks like."""

from __future__ import annotations

from argparse import BooleanOptionalAction
from typing import TYPE_CHECKING

from distgnn.cli.flags import number, whole

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


def add_model_arguments(
    group: argparse._ArgumentGroup, *, layers: Callable[[str], object] | None = None
) -> None:
    """Add what the model looks like.

    Args:
        group: Of the verb.
        layers: Type of --layers where the verb takes more than a number.
    """
    add = group.add_argument
    add(
        "--model",
        default="sage",
        help="sage, gcn, gat, gatv2, gin, sgc or appnp; of graphs with types of edges, rgcn or "
        "rsage (default: %(default)s)",
    )
    add(
        "--aggregator",
        default="mean",
        help="of sage: mean, gcn, max or pool (default: %(default)s)",
    )
    add(
        "--hidden",
        type=whole(1),
        default=64,
        metavar="H",
        help="width; of gat and gatv2, of each head (default: %(default)s)",
    )
    _add_model_options(group)
    add(
        "--layers",
        type=layers or whole(1),
        metavar="L",
        help="convolutions; of appnp, dense layers (default: 2, of sgc 1)",
    )
    add("--dropout", type=number, default=0.5, metavar="D", help="default: %(default)s")
    add(
        "--input-dropout",
        type=number,
        metavar="D",
        help="of the features (default: 0 for sage, gin, sgc, rgcn and rsage, else as --dropout: "
        "as in their papers)",
    )
    add("--activation", default="relu", help="relu or elu (default: %(default)s)")
    add("--norm", default="none", help="none, batch or layer (default: %(default)s)")
    add(
        "--residual",
        action=BooleanOptionalAction,
        default=False,
        help="add a hidden layer's input to its output",
    )
    add(
        "--residual-map",
        action=BooleanOptionalAction,
        default=False,
        help="of --residual: map it linearly, always",
    )
    add(
        "--jumping",
        default="none",
        help="a linear layer reads cat or max of all layers, or the last (default: none)",
    )
    add(
        "--activations-dtype",
        default="fp32",
        metavar="fp32|bf16",
        help="how rows between layers, and their gradients, are stored and sent; weights and sums "
        "stay fp32, but products of such rows round their weights (default: %(default)s)",
    )


def _add_model_options(group: argparse._ArgumentGroup) -> None:
    """Add what some models take."""
    add = group.add_argument
    add(
        "--heads",
        type=whole(1),
        default=4,
        metavar="K",
        help="of gat, gatv2 (default: %(default)s)",
    )
    add(
        "--last-heads",
        type=whole(0),
        default=0,
        metavar="K",
        help="of gat, gatv2: heads of the layer that gives the classes (default: as --heads)",
    )
    add(
        "--attention-dropout",
        type=number,
        default=0.0,
        metavar="D",
        help="of gat and gatv2: of the weights of edges (default: %(default)s)",
    )
    add(
        "--edge-features",
        default="auto",
        metavar="use|ignore",
        help="of gat, gatv2 and gin: whether layers read the features of edges (default: use, "
        "where the graph has some)",
    )
    add(
        "--degrees",
        default="in",
        metavar="in|out-in",
        help="of gcn, sgc and appnp: an edge is divided by the in-degrees of both its ends (as PyG "
        "does), or by the out-degree of its source (as DGL does) (default: %(default)s)",
    )
    add(
        "--hops",
        type=whole(1),
        metavar="K",
        help="of sgc and appnp: edges that a layer propagates over (default: 2, of appnp 10)",
    )
    add(
        "--alpha",
        type=number,
        default=0.1,
        metavar="A",
        help="of appnp: share of a vertex's own row in each hop (default: %(default)s)",
    )
    add(
        "--eps",
        type=number,
        default=0.0,
        metavar="E",
        help="of gin: a vertex's own row counts 1 + E (default: %(default)s)",
    )
    add(
        "--bases",
        type=whole(0),
        default=0,
        metavar="B",
        help="of rgcn and rsage: maps that those of all relations are made of; not of the "
        "first layer of a graph without features (default: one each)",
    )
    add(
        "--relation-norm",
        default="relation",
        metavar="relation|all|none",
        help="of rgcn and rsage: a vertex's sum over a relation is divided by its in-edges of that "
        "relation, by all of them, or by nothing (default: %(default)s)",
    )
    add(
        "--learn-eps",
        action=BooleanOptionalAction,
        default=False,
        help="of gin: E is a weight and starts there",
    )
