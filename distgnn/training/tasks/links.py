"""Link prediction: the pairs that a rank scores, their loss, and their metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from distgnn import kernels
from distgnn.aggregate.traffic import ITEM_BYTES
from distgnn.exchange.base import Synchronous
from distgnn.exchange.checks import CheckedRows, evaluation_after
from distgnn.exchange.fetch import Fetch, Roots
from distgnn.exchange.tags import LINK_EVALUATION_TAG, LINK_TAG
from distgnn.training.data.link_inputs import HELD_OUT, LinkInputs
from distgnn.training.tasks.objective import Objective
from distgnn.training.tasks.pairs import draw_others, draw_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from distgnn.comm.group import Group
    from distgnn.exchange.checks import NoChecks
    from distgnn.graph.local_graph import LocalGraph

# Seeds of the pairs that links are ranked among: the same in every run, on any number of ranks.
_SEEDS = {"val": 1, "test": 2}
# Pairs of one block: 4 MiB of rows at 64 columns, which stay in cache. Blocks of 64 MiB took two to
# three times as long.
_BLOCK = 1 << 14
# Bytes of a drawn pair: both ends, and the arrays that are sorted to find them. Copies of a row:
# the row, its gradient, and one in a message. Measured on 680,000 edges of 20,000 vertices with
# 128, 256 and 512 columns, whose peaks are predicted to 17 %.
_PAIR_BYTES = 128
_ROW_COPIES = 3
# Bytes that the random pairs of links may take at once. All of them would take 117 KB a link.
_RANKED_BYTES = 64 << 20
# Bytes that are kept of them between evaluations, in all and for one pair: the numbers of both
# ends, and the place of one row.
_KEPT_BYTES = 256 << 20
_KEPT_PAIR_BYTES = 20


class Pairs:
    """Pairs of vertices that a rank scores; planning them is collective.

    Args:
        roots: Places of the roots of all vertices.
        first: (num,) int64. First end of each pair.
        second: (num,) int64. Second end of each pair.

    Attributes:
        num_rows: Number of distinct vertices, whose rows are fetched.
    """

    def __init__(self, roots: Roots, first: Tensor, second: Tensor) -> None:
        self._fetch = Fetch(roots, torch.cat([first, second]))
        numbers = self._fetch.number
        self._ends = numbers.chunk(2) if len(first) else (numbers, numbers)
        self.num_rows = self._fetch.num_rows

    def loss(self, rows: Tensor, decoder: nn.Module, *, is_link: bool) -> Tensor:
        """Return the sum of the pairs' losses: -log sigmoid(score), or -log(1 - sigmoid(score)).

        Memory holds the rows of one block of pairs at a time, also in backward. Collective.

        Args:
            rows: (num_roots, width) rows of this rank.
            decoder: Module that scores pairs.
            is_link: Whether the pairs are links.
        """
        table = self._fetch.rows(rows)
        sign = 1.0 if is_link else -1.0
        total: Tensor = _SumOfLosses.apply(table, self._ends, decoder, sign, *decoder.parameters())  # type: ignore[no-untyped-call]
        return total

    def scores(self, rows: Tensor, decoder: nn.Module) -> Tensor:
        """Return (num,) scores before the sigmoid, without a gradient; collective.

        Args:
            rows: (num_roots, width) rows of this rank.
            decoder: Module that scores pairs.
        """
        table = self._fetch.forward(rows)
        blocks = zip(*(torch.split(ends, _BLOCK) for ends in self._ends), strict=True)
        found = [decoder(*(_picked(table, numbers) for numbers in block)) for block in blocks]
        return torch.cat(found) if found else table.new_empty(0)


def _picked(table: Tensor, numbers: Tensor) -> Tensor:
    rows = table.new_empty((len(numbers), table.shape[1]))
    kernels.gather_rows(table, numbers, rows)
    return rows


class _SumOfLosses(torch.autograd.Function):
    """Sum of the losses of pairs; forward computes the gradient, too, block by block."""

    @staticmethod
    def forward(
        ctx: Any,
        table: Tensor,
        ends: tuple[Tensor, Tensor],
        decoder: nn.Module,
        sign: float,
        *weights: Tensor,
    ) -> Tensor:
        total = table.new_zeros((), dtype=torch.float64)
        grad = torch.zeros_like(table)
        grads = [torch.zeros_like(weight) for weight in weights]
        for block in zip(*(torch.split(one, _BLOCK) for one in ends), strict=True):
            if not len(block[0]):
                continue
            rows = [_picked(table, numbers).requires_grad_() for numbers in block]
            with torch.enable_grad():
                value = functional.softplus(-sign * decoder(*rows)).sum()
            found = torch.autograd.grad(value, [*rows, *weights])
            for numbers, of_rows in zip(block, found, strict=False):
                kernels.scatter_add_rows(of_rows.contiguous(), numbers, grad)
            for one, of_weight in zip(grads, found[2:], strict=True):
                one += of_weight
            total += value.detach()
        ctx.save_for_backward(grad, *grads)
        return total.to(table.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        grad, *grads = (given[0] * one for one in ctx.saved_tensors)
        return grad, None, None, None, *grads


@dataclass(frozen=True)
class LinkEvaluation:
    """Metrics of links.

    Attributes:
        metric: Metric by name of the split; None for training, whose edges the rows are made from.
        val_loss: Mean loss over validation links and their random pairs.
    """

    metric: dict[str, float | None]
    val_loss: float


class LinkEvaluator:
    """Evaluator of held-out links against fixed random pairs; collective.

    Where each link has its own pairs, these are 1000 times as many as links. They are drawn and
    looked up for some links at a time, and kept for the next evaluation within `_KEPT_BYTES`.

    Args:
        inputs: This rank's share of the task.
        group: All ranks.
        checks: Checks of the rows that travel; None for none.

    Attributes:
        exchange: Exchange of the rows of their ends.
    """

    def __init__(self, inputs: LinkInputs, group: Group, checks: NoChecks | None = None) -> None:
        device = inputs.features.device
        self.exchange = Synchronous(group, first_tag=LINK_EVALUATION_TAG, device=device)
        self.exchange.checks = checks or self.exchange.checks
        self._group = group
        self._measure = inputs.measure
        self._held_out = inputs.held_out
        self._num_vertices = inputs.num_vertices
        most = torch.tensor([len(inputs.held_out[name]) for name in HELD_OUT])
        group.all_reduce(most, "max")
        self._most = dict(zip(HELD_OUT, most.tolist(), strict=True))
        self._roots = Roots(self.exchange, inputs.root_id, inputs.num_vertices)
        self._links = {name: self._pairs(*inputs.held_out[name].T.copy()) for name in HELD_OUT}
        self._kept: dict[tuple[str, int, int], Pairs] = {}
        self._shared: dict[str, Pairs] = {}
        if not self._measure.num_own:
            for name in HELD_OUT:
                numbers = own_share(inputs.counts[name], group)
                drawn = draw_pairs(_SEEDS[name], numbers, inputs.num_vertices)
                self._shared[name] = self._pairs(*drawn)

    def _pairs(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> Pairs:
        return Pairs(self._roots, torch.from_numpy(first), torch.from_numpy(second))

    @torch.no_grad()
    def evaluate(self, rows: Tensor, decoder: nn.Module) -> LinkEvaluation:
        """Measure the links by rows of their ends.

        Args:
            rows: (num_roots, width) rows of this rank.
            decoder: Module that scores pairs.
        """
        sums = torch.zeros(len(HELD_OUT), 3, 2, dtype=torch.float64)
        for of_split, name in zip(sums, HELD_OUT, strict=True):
            for links, others in self._scored(name, rows, decoder):
                of_split[0] += self._measure.shares(links, others, self._group)
                of_split[1] += _loss(-links)
                of_split[2] += _loss(others)
        self._group.all_reduce(sums)
        values = [self._measure.value(of_split[0]) for of_split in sums]
        losses = sums[HELD_OUT.index("val"), 1:]
        means = losses[:, 0] / losses[:, 1].clamp(min=1)
        metric = {"train": None, **dict(zip(HELD_OUT, values, strict=True))}
        return LinkEvaluation(metric, float(means.mean()))

    def _scored(
        self, name: str, rows: Tensor, decoder: nn.Module
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Score links of a split and the pairs that they are ranked among, as `shares` takes them.

        All links come at once where they share pairs, else as many as `_RANKED_BYTES` allows.
        """
        self.exchange.end_epoch()
        links, num_own = self._links[name].scores(rows, decoder), self._measure.num_own
        if not num_own:
            yield links, self._shared[name].scores(rows, decoder)
            return
        step = max(1, self._num_ranked(rows.shape[1]) // num_own)
        # Each step is collective, so a rank with fewer links takes as many, the last without any.
        for begin in range(0, self._most[name], step):
            self.exchange.end_epoch()
            end = min(begin + step, self._most[name])
            others = self._own_pairs(name, begin, end).scores(rows, decoder)
            yield links[begin:end], others.reshape(-1, num_own)

    def _own_pairs(self, name: str, begin: int, end: int) -> Pairs:
        """Return the random pairs of the links of a range; collective."""
        found = self._kept.get((name, begin, end))
        if found is None:
            num_own, ends = self._measure.num_own, self._held_out[name][begin:end]
            second = draw_others(_SEEDS[name], ends, num_own, self._num_vertices)
            found = self._pairs(np.repeat(ends[:, 0], num_own), second.reshape(-1))
            # All ranks must decide alike, because planning is collective: these numbers are equal.
            if end <= self._num_kept:
                self._kept[name, begin, end] = found
        return found

    @property
    def _num_kept(self) -> int:
        """Number of links of a split whose pairs are kept."""
        link_bytes = max(1, self._measure.num_own) * _KEPT_PAIR_BYTES
        return _KEPT_BYTES // (len(HELD_OUT) * link_bytes)

    @property
    def kept_bytes(self) -> int:
        """Most bytes that pairs take between evaluations, without shared pairs."""
        num_links: int = sum(min(most, self._num_kept) for most in self._most.values())
        return num_links * self._measure.num_own * _KEPT_PAIR_BYTES

    def _num_ranked(self, width: int) -> int:
        """Return the number of pairs that fit into `_RANKED_BYTES`."""
        row_bytes = _ROW_COPIES * ITEM_BYTES * width
        with_all_rows = (_RANKED_BYTES - row_bytes * self._num_vertices) // _PAIR_BYTES
        return max(_RANKED_BYTES // (_PAIR_BYTES + row_bytes), with_all_rows)


def _loss(scores: Tensor) -> Tensor:
    """Return (2,) float64: sum of the losses of pairs that are no links, and their number."""
    total = float(functional.softplus(scores).sum(dtype=torch.float64))
    return torch.tensor([total, scores.numel()], dtype=torch.float64)


def own_share(count: int, group: Group) -> NDArray[np.int64]:
    """Return this rank's share of the numbers 0 .. count - 1."""
    return np.arange(count * group.rank // group.size, count * (group.rank + 1) // group.size)


class LinkObjective(Objective):
    """Mean binary cross-entropy over the edges and as many random pairs, drawn in each epoch.

    A repeated edge counts each time, and each direction counts. A rank scores the edges of its
    part and a share of the random pairs. The constructor is collective.

    Args:
        inputs: This rank's share of the task.
        graph: Graph of the training pass; its seeds draw the pairs.
        decoder: Module that scores pairs.
    """

    def __init__(self, inputs: LinkInputs, graph: LocalGraph, decoder: nn.Module) -> None:
        self.measure = inputs.measure
        self._graph = graph
        self._decoder = decoder
        self._num_vertices = inputs.num_vertices
        self._count = inputs.counts["train"]
        self._exchange = Synchronous(graph.group, first_tag=LINK_TAG, device=graph.device)
        # Before the ends of edges are looked up, which travel too.
        self._exchange.checks, evaluating = graph.exchange.checks, None
        if isinstance(graph.exchange.checks, CheckedRows):
            seeds = graph.mask_seeds
            evaluating = CheckedRows(lambda: evaluation_after(seeds.epoch))
        self._roots = Roots(self._exchange, inputs.root_id, inputs.num_vertices)
        ends = torch.from_numpy(inputs.edges)
        self._edges = Pairs(self._roots, ends[:, 0], ends[:, 1])
        self._evaluator = LinkEvaluator(inputs, graph.group, evaluating)
        graph.add_setup_bytes(self._exchange.take_bytes() + self._evaluator.exchange.take_bytes())

    @property
    def num_terms(self) -> float:
        """See `Objective`."""
        return 2 * self._count

    def loss(self, scores: Tensor) -> Tensor:
        """Return this rank's share of the loss for (num_roots, width) rows."""
        self._exchange.end_epoch()
        self._exchange.clock = self._graph.exchange.clock
        numbers = own_share(self._count, self._graph.group)
        drawn = draw_pairs(self._graph.mask_seeds.next_seed(), numbers, self._num_vertices)
        others = Pairs(self._roots, *map(torch.from_numpy, drawn))
        total = self._edges.loss(scores, self._decoder, is_link=True)
        total = total + others.loss(scores, self._decoder, is_link=False)
        return total / (2 * self._count)

    def evaluate(self, scores: Tensor) -> LinkEvaluation:
        """Measure held-out links by (num_roots, width) rows."""
        return self._evaluator.evaluate(scores, self._decoder)

    def working_bytes(self, width: int) -> int:
        """Return the bytes of a step: rows of roots and ends, and pairs, also kept ones."""
        num_drawn = len(own_share(self._count, self._graph.group))
        drawn_rows = min(2 * num_drawn, self._num_vertices)
        num_rows = self._graph.num_rows + self._edges.num_rows + drawn_rows
        step_bytes = _ROW_COPIES * ITEM_BYTES * width * num_rows + _PAIR_BYTES * num_drawn
        return step_bytes + self._evaluator.kept_bytes

    def take_bytes(self) -> int:
        """Return the payload bytes of rows of ends, and of the messages that find them."""
        return self._exchange.take_bytes()

    def take_eval_bytes(self) -> int:
        """Return the same bytes of evaluations."""
        return self._evaluator.exchange.take_bytes()
