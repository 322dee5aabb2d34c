"""Rows of any vertices, wherever their roots lie; what travels is known to who asks alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from distgnn import kernels
from distgnn.exchange.route import tell_route

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.exchange.base import Synchronous


class Deal:
    """Rows that each go to one rank, and what comes back for each of them; collective.

    Args:
        exchange: Carries them.
        rank: (num,) int64. Where each row goes, this rank among them.
    """

    def __init__(self, exchange: Synchronous, rank: Tensor) -> None:
        group = exchange.group
        self._exchange = exchange
        self._order = torch.argsort(rank, stable=True)
        counts = torch.bincount(rank, minlength=group.size).cpu().tolist()
        first = sum(counts[: group.rank])
        # A rank sends itself nothing: its own rows are put between those of the others.
        self._sent = slice(first, first + counts[group.rank])
        counts[group.rank] = 0
        self._route = tell_route(group, counts)
        first = sum(s.stop - s.start for s in self._route.incoming if s.peer < group.rank)
        self._got = slice(first, first + self._sent.stop - self._sent.start)

    def there(self, rows: Tensor) -> Tensor:
        """Send the rows.

        Args:
            rows: (num, width).

        Returns:
            (num_dealt, width): those that came here, by rank and in the order of that rank.
        """
        packed = rows[self._order]
        remote, own = _taken(packed, self._sent)
        arrived = self._exchange.begin(self._route, remote, self._exchange.new_channel()).wait()
        return _inserted(arrived, own, self._got)

    def back(self, rows: Tensor) -> Tensor:
        """Answer: the adjoint of `there`.

        Args:
            rows: (num_dealt, width), in the order in which `there` gives them.

        Returns:
            (num, width), in the order of the rows that were dealt.
        """
        remote, own = _taken(rows, self._got)
        route = self._route.reversed()
        arrived = self._exchange.begin(route, remote, self._exchange.new_channel()).wait()
        answers = rows.new_empty((len(self._order), rows.shape[1]))
        answers[self._order] = _inserted(arrived, own, self._sent)
        return answers


def _taken(rows: Tensor, own: slice) -> tuple[Tensor, Tensor]:
    """Part rows from those of a slice."""
    return torch.cat([rows[: own.start], rows[own.stop :]]), rows[own]


def _inserted(rows: Tensor, own: Tensor, where: slice) -> Tensor:
    if not len(rows):
        return own
    return torch.cat([rows[: where.start], own, rows[where.start :]])


class Roots:
    """Where the root of each vertex lies.

    Rank p keeps the answers for the p-th share of the ids, so that no rank knows of all vertices.
    Building one is collective.

    Args:
        exchange: Carries questions and answers.
        root_id: (num_roots,) int64. Global ids of this rank's roots.
        num_vertices: Number of vertices of the whole graph.
    """

    def __init__(self, exchange: Synchronous, root_id: Tensor, num_vertices: int) -> None:
        group, device = exchange.group, exchange.device
        root_id = root_id.to(device)
        self.exchange = exchange
        self._share = -(-num_vertices // group.size)
        deal = Deal(exchange, root_id // self._share)
        place = torch.stack([root_id, torch.arange(len(root_id), device=device)], dim=1)
        told = deal.there(place)
        sender = deal.there(torch.full((len(root_id), 1), group.rank, device=device))[:, 0]
        self._first = self._share * group.rank
        self._kept = torch.empty((self._share, 2), dtype=torch.int64, device=device)
        self._kept[told[:, 0] - self._first] = torch.stack([sender, told[:, 1]], dim=1)

    def find(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Find vertices; collective.

        Args:
            ids: (num,) int64. Any on each rank.

        Returns:
            (num,) int64 rank of each vertex's root, and (num,) int64 number of the root there.
        """
        deal = Deal(self.exchange, ids // self._share)
        asked = deal.there(ids[:, None])[:, 0]
        rank, row = deal.back(self._kept[asked - self._first]).unbind(dim=1)
        return rank, row


class Fetch:
    """Rows of given vertices, fetched from their roots; planning one is collective.

    Args:
        roots: Where they lie.
        ids: (num,) int64. The vertices; each is fetched once, however often it is given.

    Attributes:
        number: (num,) int32. Which of the fetched rows belongs to each id.
        num_rows: Rows that are fetched.
    """

    def __init__(self, roots: Roots, ids: Tensor) -> None:
        distinct, number = torch.unique(ids.to(roots.exchange.device), return_inverse=True)
        self.number = number.int()
        self.num_rows = len(distinct)
        rank, row = roots.find(distinct)
        self._deal = Deal(roots.exchange, rank)
        self._asked = self._deal.there(row[:, None])[:, 0].int()

    def rows(self, table: Tensor) -> Tensor:
        """Fetch rows; differentiable and collective, as its backward is.

        Args:
            table: (num_roots, width), float32 or float64, of this rank.

        Returns:
            (num_rows, width).
        """
        result: Tensor = _FetchRows.apply(table, self)  # type: ignore[no-untyped-call]
        return result

    def forward(self, table: Tensor) -> Tensor:
        """Compute `rows`, unseen by autograd."""
        asked = table.new_empty((len(self._asked), table.shape[1]))
        kernels.gather_rows(table.contiguous(), self._asked, asked)
        return self._deal.back(asked)

    def backward(self, grad: Tensor, num_roots: int) -> Tensor:
        """Add up at the roots what the rows that were fetched of them got.

        Args:
            grad: (num_rows, width).
            num_roots: Number of roots of this rank.

        Returns:
            (num_roots, width).
        """
        total = grad.new_zeros((num_roots, grad.shape[1]))
        kernels.scatter_add_rows(self._deal.there(grad).contiguous(), self._asked, total)
        return total


class _FetchRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, fetch: Fetch) -> Tensor:
        ctx.fetch, ctx.num_roots = fetch, len(table)
        return fetch.forward(table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.fetch.backward(grads[0], ctx.num_roots), None
