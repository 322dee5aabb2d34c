"""Shapes of models: their options, and the layers behind each name of --model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from distgnn.datasets.errors import InputError
from distgnn.nn.convolution import Convolution, Dense
from distgnn.nn.gat import GATConv
from distgnn.nn.gatv2 import GATv2Conv
from distgnn.nn.gcn import GCNConv
from distgnn.nn.gin import GINConv, GINEConv
from distgnn.nn.propagation import APPNPConv, SGConv
from distgnn.nn.relational import (
    GraphSize,
    LearnedRelationalConv,
    RGCNConv,
)
from distgnn.nn.sage import SAGEConv
from distgnn.settings.model import ModelSettings

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ModelSettings):
    """Shape of a model, and all that follows from it."""

    @property
    def kind(self) -> Kind:
        """Builder of the layers that the name of the model stands for."""
        return OWN_KIND if self.own else KINDS[self.model]

    @property
    def reads_edge_features(self) -> bool:
        """Whether layers read the features of edges, once the graph has decided."""
        return self.edge_features == "use"

    def edge_width(self, size: GraphSize) -> int:
        """Return the columns of the features of edges that layers read; 0 for none.

        Args:
            size: Size of the graph.
        """
        return size.num_edge_features if self.reads_edge_features else 0

    @property
    def hidden_width(self) -> int:
        """Columns between layers: those of all heads."""
        return self.kind.width(self)

    @property
    def is_chain(self) -> bool:
        """Whether each layer is read by the next alone, so that it can be one operation."""
        config_of_parts = (self.norm, self.residual, self.jumping, self.activation)
        return config_of_parts == ("none", False, "none", "relu")

    @property
    def num_hidden(self) -> int:
        """Hidden layers: all where a linear layer reads them, else all but the last."""
        return self.layers - (self.jumping == "none")

    def convolution(
        self, in_channels: int, out_channels: int, size: GraphSize, *, is_last: bool
    ) -> Convolution:
        """Build one layer; `out_channels` of attention is that of each head."""
        return self.kind.on(size, self).build(self, in_channels, out_channels, is_last=is_last)


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
            size: Size of the graph.
            config: Shape of the model.

        Raises:
            InputError: If the graph lacks what the layers read.
        """
        del size, config
        return self

    def check_without_features(self, config: ModelConfig) -> None:
        """Check that all options have an effect on a graph without features.

        Args:
            config: Shape of the model.

        Raises:
            InputError: If one has none.
        """
        del config

    @abstractmethod
    def build(
        self, config: ModelConfig, in_channels: int, out_channels: int, *, is_last: bool
    ) -> Convolution:
        """Build one layer.

        Args:
            config: Shape of the model.
            in_channels: Columns of its input.
            out_channels: Columns of its output; of attention, of each head.
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
        self, config: ModelConfig, in_channels: int, out_channels: int, *, is_last: bool
    ) -> Convolution:
        del is_last
        return SAGEConv(in_channels, out_channels, aggr=config.aggregator)

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
        self, config: ModelConfig, in_channels: int, out_channels: int, *, is_last: bool
    ) -> Convolution:
        del is_last
        return GCNConv(in_channels, out_channels, degrees=config.degrees)


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
        self, config: ModelConfig, in_channels: int, out_channels: int, *, is_last: bool
    ) -> Convolution:
        return self.layer(
            in_channels,
            out_channels,
            heads=(is_last and config.last_heads) or config.heads,
            concat=not is_last,
            dropout=config.attention_dropout,
            edge_dim=self._edge_width,
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
        self, config: ModelConfig, in_channels: int, out_channels: int, *, is_last: bool
    ) -> Convolution:
        del is_last
        shared: dict[str, Any] = {
            "hidden_channels": config.hidden,
            "eps": config.eps,
            "train_eps": config.learn_eps,
        }
        if self._edge_width:
            return GINEConv(in_channels, out_channels, edge_dim=self._edge_width, **shared)
        return GINConv(in_channels, out_channels, **shared)

    def why_not_static(self, config: ModelConfig) -> str:
        return "features of edges join it anew" if config.reads_edge_features else ""


class _Sgc(Kind):
    options = frozenset({"hops", "degrees"})
    has_loops = True
    defaults: ClassVar[Mapping[str, int]] = {"layers": 1}
    drops_input = False

    def build(
        self, config: ModelConfig, in_channels: int, out_channels: int, *, is_last: bool
    ) -> Convolution:
        del is_last
        return SGConv(in_channels, out_channels, K=config.hops, degrees=config.degrees)

    def why_not_restricted(self, config: ModelConfig) -> str:
        return "" if config.hops == 1 else _why_too_far(config)


class _Appnp(Kind):
    options = frozenset({"hops", "degrees", "alpha"})
    defaults: ClassVar[Mapping[str, int]] = {"hops": 10}
    has_hidden_sums = False
    has_loops = True

    def build(
        self, config: ModelConfig, in_channels: int, out_channels: int, *, is_last: bool
    ) -> Convolution:
        if not is_last:
            return Dense(in_channels, out_channels)
        hops, alpha, degrees = config.hops, config.alpha, config.degrees
        return APPNPConv(in_channels, out_channels, K=hops, alpha=alpha, degrees=degrees)

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
        self, config: ModelConfig, in_channels: int, out_channels: int, *, is_last: bool
    ) -> Convolution:
        del is_last
        if not in_channels:
            return LearnedRelationalConv(out_channels, self._size, norm=config.relation_norm)
        return RGCNConv(
            in_channels,
            out_channels,
            num_relations=self._size.num_relations,
            num_bases=config.bases,
            num_own_maps=max(self._size.num_vertex_types, 1) if self._maps_types else 1,
            norm=config.relation_norm,
        )

    def why_not_static(self, config: ModelConfig) -> str:
        del config
        return "it is mapped or learned before it is aggregated"


class _Own(Kind):
    """A module that the user wrote, of which nothing is known."""

    options = frozenset({"edge_features"})

    def build(
        self, config: ModelConfig, in_channels: int, out_channels: int, *, is_last: bool
    ) -> Convolution:
        raise AssertionError("the user builds it")

    def why_not_static(self, config: ModelConfig) -> str:
        del config
        return "a model of your own decides what it aggregates"

    def why_not_restricted(self, config: ModelConfig) -> str:
        del config
        return "a model of your own may read any row"


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
"""By name of --model; the names of `ModelName` but the last, in its order."""
OWN: Literal["own"] = "own"
OWN_KIND = _Own()


def models_with(option: str) -> list[str]:
    """Return the names of the models that read a field of the configuration."""
    return [name for name, kind in KINDS.items() if option in kind.options]
