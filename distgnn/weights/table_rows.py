"""Rows of learned tables that can have a gradient: the others need not be sent.

A learned table has a row for each vertex, or for each of its relations. The loss reaches the rows
within as many edges of the training vertices as the model has layers. The gradient of every other
row is zero on every rank, in every epoch, so that the sum over ranks of these is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor, nn

    from distgnn.comm.group import Group


class TableRows(NamedTuple):
    """Rows of learned tables that have a gradient on some rank; the same on every rank.

    Attributes:
        tables: Tables of which some rows never have a gradient.
        rows: (num_sent,) int64 for each table: its other rows, ascending.
        num_rows: Rows of all learned tables of the model, those included that are sent whole.
    """

    tables: tuple[nn.Parameter, ...] = ()
    rows: tuple[Tensor, ...] = ()
    num_rows: int = 0

    @classmethod
    def find(cls, read: Iterable[tuple[nn.Parameter, Tensor]], group: Group) -> TableRows:
        """Unite the rows that the ranks read; collective.

        Args:
            read: Tables with the rows that this rank reads, from `GNN.table_rows`; the same tables
                in the same order on every rank.
            group: All ranks.
        """
        tables, rows, total = [], [], 0
        for table, own in read:
            is_read = torch.zeros(len(table), dtype=torch.uint8, device=table.device)
            is_read[own] = 1
            if group.size > 1:
                group.all_reduce(is_read, "max")
            total += len(table)
            found = is_read.nonzero()[:, 0]
            if len(found) < len(table):
                tables.append(table)
                rows.append(found)
        return cls(tuple(tables), tuple(rows), total)

    def of(self, parameter: nn.Parameter) -> Tensor | None:
        """Return the rows of a parameter that are sent; None for all of them."""
        for table, rows in zip(self.tables, self.rows, strict=True):
            if table is parameter:
                return rows
        return None

    @property
    def num_left_out(self) -> int:
        """Rows that are not sent."""
        pairs = zip(self.tables, self.rows, strict=True)
        return sum(len(table) - len(rows) for table, rows in pairs)

    @property
    def savings(self) -> Iterator[str]:
        """A line about the rows that are sent, where the model has learned tables."""
        if self.num_rows:
            share = 100 * (1 - self.num_left_out / self.num_rows)
            yield f"learned tables: {share:.1f} % of the rows can have a gradient and are summed"


NO_TABLES = TableRows()
"""Rows of a model without learned tables, or of one that is not known."""
