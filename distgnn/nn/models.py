"""Models: a stack of convolutions with the usual parts between them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import torch
from torch import nn

from distgnn.aggregate.traffic import ITEM_BYTES
from distgnn.kernels.tensors import DTYPES
from distgnn.nn.convolution import ActivatedConvolution, Convolution
from distgnn.nn.decoders import DECODERS, DecoderName
from distgnn.nn.fused import FusedConvolution
from distgnn.nn.linear import Given, Linear, OuterLinear, map_own
from distgnn.nn.norm import BatchNorm, LayerNorm
from distgnn.nn.recompute import again_in_backward
from distgnn.nn.relational import UNTYPED, GraphSize
from distgnn.nn.update import Activation, Elu

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.aggregate.traffic import LayerTraffic
    from distgnn.graph.local_graph import LocalGraph
    from distgnn.nn.config import ModelConfig, NormName
    from distgnn.ops.rows import Rows


class GNN(nn.Module):
    """Convolutions with normalisation, activation, dropout, residuals and jumping knowledge.

    Hidden layer: h' = dropout(act(norm(conv(h) [+ residual(h)]))). Without jumping knowledge the
    last convolution gives the classes; with it, a linear layer reads all hidden layers.

    Args:
        config: The shape of the model.
        num_features: Columns of the input.
        num_classes: Columns of the output.
        size: Size of the graph; typed models, and those that read features of edges, need it.

    Attributes:
        num_features: As given.

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
        outputs = []
        layers = zip(self.hidden, self.norms, self.residuals, strict=True)
        for number, (conv, norm, residual) in enumerate(layers):
            level = graph.level(number)
            if self._is_one_operation(conv, rows):
                rows = conv(level, rows, self._activation())
                continue
            parts = _Parts(
                level, conv, norm, residual if self.config.residual else None, self.is_chain
            )
            if self.recomputes and torch.is_grad_enabled():
                rows = again_in_backward(parts.apply, level, rows, self._activation())
            else:
                rows = parts.apply(rows, self._activation())
            if self.config.jumping in ("cat", "max"):
                outputs.append(rows)
        if self.config.jumping == "cat":
            return self.last(torch.cat(outputs, dim=1))  # type: ignore[no-any-return]
        if self.config.jumping == "max":
            return self.last(torch.stack(outputs).amax(dim=0))  # type: ignore[no-any-return]
        if self.config.jumping == "last":
            return self.last(rows)  # type: ignore[no-any-return]
        return self.last(graph.level(len(self.hidden)), rows)  # type: ignore[no-any-return]

    def set_recompute(self, recomputes: bool) -> None:
        """Choose whether backward computes hidden layers again instead of their values being kept.

        Results have the same bits. Batch norm would count its statistics twice.

        Args:
            recomputes: The choice.
        """
        self.recomputes = recomputes
        for module in self.modules():
            if isinstance(module, ActivatedConvolution):
                # In a layer of separate operations the whole layer is computed again.
                module.recomputes = recomputes and (self.is_chain or module is self.last)

    def traffic(
        self, *, is_sparse: bool, is_static: bool, feature_bytes: int = ITEM_BYTES
    ) -> list[LayerTraffic]:
        """Say what each convolution moves between ranks in a training pass.

        Args:
            feature_bytes: Of a value of dense input.
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
        if isinstance(conv, ActivatedConvolution) and (self.is_chain or is_last):
            runs_again = conv.runs_again(given)
            if runs_again is not None:
                return runs_again
        return not is_last

    def _is_one_operation(self, conv: nn.Module, rows: Rows) -> bool:
        """Whether a layer takes its activation along, and sees itself to what is kept of it."""
        if not self.is_chain or not isinstance(conv, Convolution) or not conv.takes_activation:
            return False
        return not self.recomputes or conv.is_one_operation(rows)

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
        size: Of the graph.
        decoder: Name of the decoder.
    """

    def __init__(
        self, config: ModelConfig, num_features: int, size: GraphSize, decoder: DecoderName
    ) -> None:
        super().__init__(config, num_features, config.hidden, size)
        self.decoder = DECODERS[decoder](config.hidden)


class _Parts(NamedTuple):
    """A hidden layer made of separate operations, as few as may be."""

    level: LocalGraph
    conv: nn.Module
    norm: nn.Module
    residual: nn.Module | None
    is_chain: bool

    def apply(self, rows: Rows, activation: Activation | Elu) -> Tensor:
        if self.is_chain and isinstance(self.conv, Convolution) and self.conv.takes_activation:
            return self.conv(self.level, rows, activation)  # type: ignore[no-any-return]
        if self._is_mapped_at_once(rows):
            return self._mapped_at_once(rows, activation)
        result = self.conv(self.level, rows)
        if self.residual is not None:
            result = result + map_own(self.level, rows, self.residual)
        return _normalised(self.level, self.norm, result, activation)

    def _is_mapped_at_once(self, rows: Rows) -> TypeGuard[Tensor]:
        """Whether the layer is one operation up to its norm: a residual is a second map in it."""
        is_map = self.residual is None or isinstance(self.residual, Linear)
        return (
            is_map and isinstance(self.conv, FusedConvolution) and self.conv.is_one_operation(rows)
        )

    def _mapped_at_once(self, rows: Tensor, activation: Activation | Elu) -> Tensor:
        conv, norm = self.conv, self.norm
        assert isinstance(conv, FusedConvolution), "see _is_mapped_at_once"
        maps = conv.maps
        if isinstance(self.residual, Linear):
            maps = maps.plus(self.residual.weight, self.residual.bias)
        # Beside rows in bfloat16 weights are rounded: scaled ones would be to others than those
        # whose columns the norm remembers, which shows where these are far from zero.
        if isinstance(norm, BatchNorm) and not norm.training and rows.dtype == norm.weight.dtype:
            maps, norm = maps.scaled(*norm.scale_and_shift()), nn.Identity()
        # A layer that stores its result as a narrower type would send narrower rows as well, which
        # only those of a chain are said to do.
        is_last = isinstance(norm, nn.Identity)
        if is_last and isinstance(activation, Activation) and activation.dtype is None:
            return conv.mapped(self.level, rows, maps, activation)
        return _normalised(self.level, norm, conv.mapped(self.level, rows, maps, None), activation)


def _normalised(
    graph: LocalGraph, norm: nn.Module, rows: Tensor, activation: Activation | Elu
) -> Tensor:
    if isinstance(norm, nn.Identity):
        return activation.apply(graph, rows)
    if isinstance(activation, Activation):
        return norm(graph, rows, activation)  # type: ignore[no-any-return]
    return activation.apply(graph, norm(graph, rows))


def _norm(name: NormName, width: int) -> nn.Module:
    if name == "batch":
        return BatchNorm(width)
    return LayerNorm(width) if name == "layer" else nn.Identity()
