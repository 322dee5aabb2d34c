"""Models: a stack of convolutions with the usual parts between them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import nn

from distgnn.aggregate.traffic import ITEM_BYTES
from distgnn.kernels.tensors import DTYPES
from distgnn.nn.activation import Activation, Elu
from distgnn.nn.convolution import Convolution
from distgnn.nn.decoders import DECODERS
from distgnn.nn.layers import HiddenLayer, Recomputed, hidden_layer
from distgnn.nn.linear import Given, Linear, OuterLinear
from distgnn.nn.norm import BatchNorm, LayerNorm
from distgnn.nn.relational import UNTYPED, GraphSize

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.aggregate.traffic import LayerTraffic
    from distgnn.graph.local_graph import LocalGraph
    from distgnn.nn.config import ModelConfig
    from distgnn.ops.rows import Rows
    from distgnn.settings.names import DecoderName, NormName


class GNN(nn.Module):
    """Convolutions with normalisation, activation, dropout, residuals and jumping knowledge.

    Hidden layer: h' = dropout(act(norm(conv(h) [+ residual(h)]))). Without jumping knowledge the
    last convolution gives the classes; with it, a linear layer reads all hidden layers.

    Args:
        config: Shape of the model.
        num_features: Columns of the input.
        num_classes: Columns of the output.
        size: Size of the graph; typed models, and those that read features of edges, need it.

    Attributes:
        num_features: Columns of the input.

    Raises:
        InputError: If the model is typed and the graph is not.

    References:
        Xu et al., "Representation Learning on Graphs with Jumping Knowledge Networks", ICML 2018.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_features: int,
        num_classes: int,
        size: GraphSize = UNTYPED,
    ) -> None:
        super().__init__()
        self.config = config
        self.num_features = num_features
        jumps = config.jumping != "none"
        num_hidden = config.num_hidden
        width = config.hidden_width
        self.typed_input = None
        if config.kind.is_typed and num_features:
            self.typed_input = Linear(num_features, width, bias=False)
            num_features = width
        widths = [num_features] + [width] * num_hidden
        pairs = list(pairwise(widths))
        self.hidden = nn.ModuleList(
            config.convolution(pair[0], config.hidden, size, is_last=False) for pair in pairs
        )
        self.norms = nn.ModuleList(_norm(config.norm, width) for _ in pairs)
        self.residuals = nn.ModuleList(
            OuterLinear(*pair, bias=config.residual_map)
            if config.residual and (config.residual_map or pair[0] != pair[1])
            else nn.Identity()
            for pair in pairs
        )
        self.is_chain = config.is_chain
        # Jumping knowledge gives layers gradients that are parts of one.
        self._owns_gradients = config.jumping in ("none", "last")
        self.recomputes = False
        self._layers = self._hidden_layers()
        self.last: nn.Module
        if jumps:
            read = width * (num_hidden if config.jumping == "cat" else 1)
            self.last = OuterLinear(read, num_classes)
        else:
            self.last = config.convolution(widths[-1], num_classes, size, is_last=True)

    @property
    def convolutions(self) -> list[Convolution]:
        """The convolutions in order; a linear layer that reads all of them is none."""
        return [conv for conv in (*self.hidden, self.last) if isinstance(conv, Convolution)]

    def table_rows(self, graph: LocalGraph) -> list[tuple[nn.Parameter, Tensor]]:
        """Return the rows of learned tables that a training pass reads; see `Convolution`.

        Args:
            graph: The graph of the training pass.
        """
        return [
            found
            for number, conv in enumerate(self.convolutions)
            for found in conv.table_rows(graph.level(number))
        ]

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw all weights again; biases and norms start the same anyway.

        Args:
            generator: Where random numbers come from, so that a seed fixes the weights whatever
                else draws numbers in this process.
        """
        for module in self.modules():
            if isinstance(module, Linear | Convolution):
                module.reset_parameters(generator)

    def forward(self, graph: LocalGraph, features: Rows) -> Tensor:
        """Return (num_rows, num_classes) scores before softmax or sigmoid.

        Args:
            graph: A whole graph or a part.
            features: (num_rows, num_features), dense or sparse.
        """
        rows = features if self.typed_input is None else self.typed_input(features)
        if self.training and self.config.input_dropout > 0:
            rows = graph.dropout(rows, self.config.input_dropout)
        join = _JOINED.get(self.config.jumping)
        activation, outputs = self._activation(), []
        for number, layer in enumerate(self._layers):
            rows = layer(graph.level(number), rows, activation)
            if join is not None:
                outputs.append(rows)
        if self.config.jumping == "none":
            return self.last(graph.level(len(self._layers)), rows)  # type: ignore[no-any-return]
        return self.last(rows if join is None else join(outputs))  # type: ignore[no-any-return]

    def set_recompute(self, recomputes: bool) -> None:
        """Choose whether backward recomputes the inner values of layers instead of keeping them.

        Results have the same bits. Batch norm would count its statistics twice.

        Args:
            recomputes: Whether it does.
        """
        self.recomputes = recomputes
        self._layers = self._hidden_layers()
        for conv in self.convolutions:
            # A layer of separate operations is recomputed as a whole instead.
            conv.recomputes = recomputes and (self.is_chain or conv is self.last)

    def layer(self, number: int) -> HiddenLayer:
        """Return the form in which a hidden layer runs.

        Args:
            number: Number of the layer, from 0.
        """
        return self._layers[number]

    def traffic(
        self, *, is_sparse: bool, is_static: bool, feature_bytes: int = ITEM_BYTES
    ) -> list[LayerTraffic]:
        """Return what each convolution moves between ranks in a training pass.

        Args:
            feature_bytes: Bytes of a value of dense input.
            is_sparse: Whether the input is, or is streamed: it is mapped before it is aggregated.
            is_static: Whether its aggregate is there already; never of sparse or dropped-out input.

        Returns:
            In order; a linear layer that reads all others is none of them.
        """
        convolutions = [*self.hidden, self.last]
        found = []
        for number, conv in enumerate(convolutions):
            if not isinstance(conv, Convolution):
                continue
            is_first, is_last = number == 0, number == len(self.hidden)
            hidden_bytes = DTYPES[self.config.activations_dtype].itemsize
            takes_activation = self.is_chain and not is_last
            given = Given(
                is_first and is_sparse,
                is_first and is_static,
                not is_first,
                feature_bytes if is_first else hidden_bytes,
                hidden_bytes if takes_activation else ITEM_BYTES,
            )
            traffic = conv.traffic(given)
            found.append(traffic.again() if self._runs_again(conv, given, is_last) else traffic)
        return found

    def _runs_again(self, conv: Convolution, given: Given, is_last: bool) -> bool:
        """Whether backward aggregates once more what forward aggregated."""
        if not self.recomputes:
            return False
        runs_again = conv.runs_again(given) if self.is_chain or is_last else None
        return not is_last if runs_again is None else runs_again

    def _hidden_layers(self) -> list[HiddenLayer]:
        """Choose how each hidden layer runs; the modules stay those of the model."""
        found = []
        for conv, norm, residual in zip(self.hidden, self.norms, self.residuals, strict=True):
            assert isinstance(conv, Convolution), "all of them are"
            added = residual if self.config.residual else None
            layer = hidden_layer(conv, norm, added, is_chain=self.is_chain)
            found.append(Recomputed(layer) if self.recomputes else layer)
        return found

    def _activation(self) -> Activation | Elu:
        probability = self.config.dropout if self.training else 0.0
        name = self.config.activations_dtype
        dtype = None if name == "fp32" else DTYPES[name]
        if self.config.activation == "elu":
            return Elu(probability, dtype)
        return Activation(probability, has_one_reader=self._owns_gradients, dtype=dtype)


class LinkModel(GNN):
    """A model whose last layer gives rows of the hidden width, and a decoder of pairs of them.

    Args:
        config: The shape of the model; rows have `hidden` columns, whatever its heads.
        num_features: Columns of the input.
        size: Size of the graph.
        decoder: Name of the decoder.
    """

    def __init__(
        self, config: ModelConfig, num_features: int, size: GraphSize, decoder: DecoderName
    ) -> None:
        super().__init__(config, num_features, config.hidden, size)
        self.decoder = DECODERS[decoder](config.hidden)


_JOINED: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "cat": lambda outputs: torch.cat(outputs, dim=1),
    "max": lambda outputs: torch.stack(outputs).amax(dim=0),
}
"""Jumping knowledge that reads all hidden layers, by name: how they become one input."""


def _norm(name: NormName, width: int) -> nn.Module:
    if name == "batch":
        return BatchNorm(width)
    return LayerNorm(width) if name == "layer" else nn.Identity()
