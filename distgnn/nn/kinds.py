"""What each name of --model stands for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from distgnn.datasets.errors import InputError
from distgnn.nn.convolution import Convolution, Dense
from distgnn.nn.gat import GATConv
from distgnn.nn.gatv2 import GATv2Conv
from distgnn.nn.gcn import GCNConv
from distgnn.nn.gin import GINConv, GINEConv
from distgnn.nn.propagation import APPNPConv, SGConv
from distgnn.nn.relational import GraphSize, LearnedRelationalConv, RelationalConv
from distgnn.nn.sage import SAGEConv

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distgnn.nn.models import ModelConfig

ModelName = Literal["sage", "gcn", "gat", "gatv2", "gin", "sgc", "appnp", "rgcn", "rsage"]


class Kind(ABC):
    """Builds the layers of a model, and says what the rest must know of them.

    Attributes:
        options: Fields of the configuration that these layers read and not all others do.
        defaults: Values of fields that a command line gets where it leaves them out.
        drops_input: Whether the command line then drops features out as it does hidden rows, as in
            the paper.
        is_typed: Whether layers read the types of edges, and features are mapped to the
            hidden width before them.
        is_attention: Whether layers call `LocalGraph.attend`, and nothing else of it.
        has_loops: Whether all that layers sum or attend to has an edge from each vertex to itself.
        has_hidden_sums: Whether hidden layers read neighbours, too, so that a linear layer may read
            them instead of the last one.
    """

    options: ClassVar[frozenset[str]] = frozenset()
    defaults: ClassVar[Mapping[str, int]] = {}
    drops_input: ClassVar[bool] = True
    is_typed: ClassVar[bool] = False
    is_attention: ClassVar[bool] = False
    has_loops: ClassVar[bool] = False
    has_hidden_sums: ClassVar[bool] = True

    def on(self, size: GraphSize, config: ModelConfig) -> Kind:
        """Return what builds the layers for a graph: this, unless they depend on it.

        Args:
            size: Of the graph.
            config: The shape of the model.

        Raises:
            InputError: If the graph lacks what the layers read.
        """
        del size, config
        return self

    def check_without_features(self, config: ModelConfig) -> None:
        """Check that all options have an effect on a graph without features.

        Args:
            config: The shape of the model.

        Raises:
            InputError: If one has none.
        """
        del config

    @abstractmethod
    def build(
        self, config: ModelConfig, in_width: int, out_width: int, *, is_last: bool
    ) -> Convolution:
        """Build one layer.

        Args:
            config: The shape of the model.
            in_width: Columns of its input.
            out_width: Columns of its output; of attention, of each head.
            is_last: Whether it gives the classes.
        """

    def width(self, config: ModelConfig) -> int:
        """Return the columns between layers."""
        return config.hidden

    def why_not_static(self, config: ModelConfig) -> str:
        """Say why the first layer cannot aggregate its input once; empty where it can."""
        del config
        return ""

    def why_not_restricted(self, config: ModelConfig) -> str:
        """Say why a layer cannot run on the rows that are read of it; empty where it can."""
        del config
        return ""

    def narrow_effect(self, config: ModelConfig) -> str:
        """Say what rows between layers do that are stored in half the bytes."""
        del config
        return "take half the memory and half the traffic"

    def sends_no_sums(self, config: ModelConfig) -> str:
        """Return the flag that chooses partials other than sums; empty where they are sums."""
        del config
        return ""

    def why_weightless(self, config: ModelConfig) -> str:
        """Say why layers read no weights of edges; empty where they do."""
        return "a maximum takes rows as they are" if self.sends_no_sums(config) else ""


class _Sage(Kind):
    options = frozenset({"aggregator"})
    drops_input = False

    def build(
        self, config: ModelConfig, in_width: int, out_width: int, *, is_last: bool
    ) -> Convolution:
        del is_last
        return SAGEConv(in_width, out_width, aggregator=config.aggregator)

    def why_not_static(self, config: ModelConfig) -> str:
        is_mapped = config.aggregator == "pool"
        return "it is mapped before it is aggregated" if is_mapped else ""

    def sends_no_sums(self, config: ModelConfig) -> str:
        is_maximum = config.aggregator in ("max", "pool")
        return f"--aggregator {config.aggregator}" if is_maximum else ""


class _Gcn(Kind):
    options = frozenset({"degrees"})
    has_loops = True

    def build(
        self, config: ModelConfig, in_width: int, out_width: int, *, is_last: bool
    ) -> Convolution:
        del is_last
        return GCNConv(in_width, out_width, degrees=config.degrees)


class _ReadsEdges(Kind):
    """Layers that may read features of edges, as many columns as the graph has."""

    def __init__(self, *, edge_width: int = 0) -> None:
        self._edge_width = edge_width

    def on(self, size: GraphSize, config: ModelConfig) -> Kind:
        return type(self)(edge_width=config.edge_width(size))


class _Gat(_ReadsEdges):
    options = frozenset({"heads", "last_heads", "attention_dropout", "edge_features"})
    layer: ClassVar[type[GATConv | GATv2Conv]] = GATConv
    is_attention = True
    has_loops = True

    def build(
        self, config: ModelConfig, in_width: int, out_width: int, *, is_last: bool
    ) -> Convolution:
        return self.layer(
            in_width,
            out_width,
            heads=(is_last and config.last_heads) or config.heads,
            concat=not is_last,
            dropout=config.attention_dropout,
            edge_width=self._edge_width,
        )

    def width(self, config: ModelConfig) -> int:
        return config.hidden * config.heads

    def why_not_static(self, config: ModelConfig) -> str:
        del config
        return "attention weighs it anew in every epoch"

    def narrow_effect(self, config: ModelConfig) -> str:
        if not config.is_chain:
            return (
                "and those that attention makes of them take half the memory, and travel so; "
                "gradients and parts of averages travel as fp32"
            )
        return (
            "and those that attention averages take half the memory, and travel so with the "
            "gradients of averages; parts of averages travel as fp32"
        )

    def sends_no_sums(self, config: ModelConfig) -> str:
        return f"--model {config.model}"

    def why_weightless(self, config: ModelConfig) -> str:
        del config
        return "attention weighs edges itself"


class _Gatv2(_Gat):
    layer = GATv2Conv

    def narrow_effect(self, config: ModelConfig) -> str:
        del config
        return "take half the memory; attention maps, sends and averages fp32"


class _Gin(_ReadsEdges):
    options = frozenset({"eps", "learn_eps", "edge_features"})
    drops_input = False

    def build(
        self, config: ModelConfig, in_width: int, out_width: int, *, is_last: bool
    ) -> Convolution:
        del is_last
        shared: dict[str, Any] = {
            "inner_width": config.hidden,
            "eps": config.eps,
            "learns_eps": config.learn_eps,
        }
        if self._edge_width:
            return GINEConv(in_width, out_width, edge_width=self._edge_width, **shared)
        return GINConv(in_width, out_width, **shared)

    def why_not_static(self, config: ModelConfig) -> str:
        return "features of edges join it anew" if config.reads_edge_features else ""


class _Sgc(Kind):
    options = frozenset({"hops", "degrees"})
    has_loops = True
    defaults: ClassVar[Mapping[str, int]] = {"layers": 1}
    drops_input = False

    def build(
        self, config: ModelConfig, in_width: int, out_width: int, *, is_last: bool
    ) -> Convolution:
        del is_last
        return SGConv(in_width, out_width, hops=config.hops, degrees=config.degrees)

    def why_not_restricted(self, config: ModelConfig) -> str:
        return "" if config.hops == 1 else _why_too_far(config)


class _Appnp(Kind):
    options = frozenset({"hops", "degrees", "alpha"})
    defaults: ClassVar[Mapping[str, int]] = {"hops": 10}
    has_hidden_sums = False
    has_loops = True

    def build(
        self, config: ModelConfig, in_width: int, out_width: int, *, is_last: bool
    ) -> Convolution:
        if not is_last:
            return Dense(in_width, out_width)
        hops, alpha, degrees = config.hops, config.alpha, config.degrees
        return APPNPConv(in_width, out_width, hops=hops, alpha=alpha, degrees=degrees)

    def why_not_static(self, config: ModelConfig) -> str:
        del config
        return "it is mapped before it is propagated"

    def why_not_restricted(self, config: ModelConfig) -> str:
        return _why_too_far(config)


class _Relational(Kind):
    options = frozenset({"bases", "relation_norm"})
    drops_input = False
    is_typed = True

    def __init__(self, *, maps_types: bool, size: GraphSize | None = None) -> None:
        self._maps_types = maps_types
        self._size = size or GraphSize()

    def on(self, size: GraphSize, config: ModelConfig) -> Kind:
        if not size.num_relations:
            raise InputError(
                f"--model {config.model} is for typed graphs, but this one has no edge_type; add "
                "the types to the source and partition it again, or use --model sage"
            )
        return _Relational(maps_types=self._maps_types, size=size)

    def check_without_features(self, config: ModelConfig) -> None:
        for given, has_effect, why in (
            (f"--input-dropout {config.input_dropout}", not config.input_dropout, "there is none"),
            (
                f"--bases {config.bases} with --layers 1",
                not config.bases or config.layers > 1,
                "the first layer learns rows instead of maps",
            ),
            (
                "--residual with one hidden layer",
                not config.residual or config.num_hidden > 1,
                "the first layer has no input to add",
            ),
        ):
            if not has_effect:
                raise InputError(
                    f"{given} has no effect on a graph without features, as {why}; drop it"
                )

    def build(
        self, config: ModelConfig, in_width: int, out_width: int, *, is_last: bool
    ) -> Convolution:
        del is_last
        if not in_width:
            return LearnedRelationalConv(out_width, self._size, norm=config.relation_norm)
        return RelationalConv(
            in_width,
            out_width,
            num_relations=self._size.num_relations,
            num_bases=config.bases,
            num_own_maps=max(self._size.num_vertex_types, 1) if self._maps_types else 1,
            norm=config.relation_norm,
        )

    def why_not_static(self, config: ModelConfig) -> str:
        del config
        return "it is mapped or learned before it is aggregated"


def _why_too_far(config: ModelConfig) -> str:
    return f"a layer reads what is up to {config.hops} edges away"


KINDS: Mapping[str, Kind] = {
    "sage": _Sage(),
    "gcn": _Gcn(),
    "gat": _Gat(),
    "gatv2": _Gatv2(),
    "gin": _Gin(),
    "sgc": _Sgc(),
    "appnp": _Appnp(),
    "rgcn": _Relational(maps_types=False),
    "rsage": _Relational(maps_types=True),
}
"""By name of --model; the names of `ModelName`, in its order."""


def models_with(option: str) -> list[str]:
    """Return the names of the models that read a field of the configuration."""
    return [name for name, kind in KINDS.items() if option in kind.options]
