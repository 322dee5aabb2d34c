"""The contract of an exchange, and the synchronous one (cd-0)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from distgnn import kernels
from distgnn.exchange.clock import Clock
from distgnn.exchange.route import buffer_like
from distgnn.exchange.tags import MAX_CHANNELS
from distgnn.kernels.devices import PROCESSOR
from distgnn.ops.buffers import Buffers

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from distgnn.comm.group import Group, Work
    from distgnn.exchange.route import Route


class Arrival(Protocol):
    """Rows under way to this rank."""

    def wait(self) -> Tensor:
        """Return the (num_in, width) incoming rows; they stay valid until the next epoch."""


def all_reduce_bytes(num_bytes: int, num_ranks: int) -> int:
    """Return the payload bytes that a ring all-reduce sends from each rank: 2 (P - 1) / P.

    Args:
        num_bytes: Size of the tensor.
        num_ranks: Number of ranks.
    """
    return 2 * (num_ranks - 1) * num_bytes // num_ranks


class Exchange(ABC):
    """Decides when rows travel and when what arrived is used; it never touches their values.

    A channel is one half of one aggregation, forward or backward. Channels are numbered in the
    order of the calls of an epoch, the same on every rank because every rank runs the same model.

    Args:
        group: The ranks.
        first_tag: Messages carry tags first_tag, first_tag + 1, ...; two exchanges that live at the
            same time need ranges that do not meet.
        device: Where rows are.

    Attributes:
        clock: Gets the time of each phase.
        buffers: Memory for rows and sums, used again in the next epoch.
        is_backward: Whether the channels that begin now carry gradients.
    """

    def __init__(
        self, group: Group, *, first_tag: int = 0, device: torch.device = PROCESSOR
    ) -> None:
        self.group = group
        self.first_tag = first_tag
        self.clock = Clock()
        self.buffers = Buffers(device)
        self.bytes_sent = 0
        self.reduced_bytes_sent = 0
        self.max_staleness = 0
        self.is_backward = False
        self._num_channels = 0

    @abstractmethod
    def begin(
        self, route: Route, rows: Tensor, channel: int, picked: Tensor | None = None
    ) -> Arrival:
        """Start one half of an exchange.

        Args:
            route: Who gets how many rows.
            rows: (num_out, width), packed by peer; must stay unchanged until the arrival was
                waited for. With `picked`, a table of any number of rows, read here and now.
            channel: From `new_channel`.
            picked: (num_out,) int32. Row of the table that stands in each row of the packed
                buffer; the same in every epoch. None if the rows are packed.

        Returns:
            The rows that arrive; `wait` for them.
        """

    @property
    def device(self) -> torch.device:
        """Where rows are."""
        return self.buffers.device

    def start_pass(self, *, is_backward: bool) -> None:
        """Say that the channels of one aggregation come next.

        Args:
            is_backward: Whether they carry gradients.
        """
        self.is_backward = is_backward
        self.clock.start_pass(is_backward=is_backward)

    def new_channel(self) -> int:
        """Number the next channel of this epoch."""
        self._num_channels += 1
        return self._num_channels - 1

    @property
    def num_channels(self) -> int:
        """Number of channels that this epoch has used so far."""
        return self._num_channels

    def end_epoch(self) -> None:
        """Start numbering channels from 0 again; delays rotate their bins here."""
        self._num_channels = 0

    def all_reduce(self, values: Tensor) -> None:
        """Sum statistics over ranks, in place; counted and timed apart from rows.

        Args:
            values: Any shape; the same on every rank.
        """
        if self.group.size > 1:
            with self.clock.timed("exchange_wait"):
                self.group.all_reduce(values)
            self.reduced_bytes_sent += all_reduce_bytes(values.nbytes, self.group.size)

    def take_reduced_bytes(self) -> int:
        """Return the payload bytes that `all_reduce` sent from this rank since the last call."""
        sent, self.reduced_bytes_sent = self.reduced_bytes_sent, 0
        return sent

    def take_bytes(self) -> int:
        """Return the payload bytes sent by this rank since the last call."""
        sent, self.bytes_sent = self.bytes_sent, 0
        return sent

    def state(self) -> dict[str, Tensor]:
        """Return the rows that a later epoch will use, by name; complete after `wait`."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned at the end of an epoch, on the same rank."""
        assert not state, "a synchronous exchange keeps no rows between epochs"


class Synchronous(Exchange):
    """cd-0: every row travels in every epoch and is used in the same one."""

    def begin(
        self, route: Route, rows: Tensor, channel: int, picked: Tensor | None = None
    ) -> Arrival:
        """Start one half of an exchange; see `Exchange.begin`."""
        if picked is not None:
            with self.clock.timed("pack"):
                packed = self.buffers.empty(route.num_out, rows.shape[1], rows.dtype)
                kernels.gather_rows(rows, picked, packed)
            rows = packed
        # Rows of a channel have arrived long before its number comes again.
        tag = self.first_tag + channel % MAX_CHANNELS
        incoming = buffer_like(rows, route.num_in)
        works = self.group.transfer(
            [(incoming[part.start : part.stop], part.peer) for part in route.incoming],
            [(rows[part.start : part.stop], part.peer) for part in route.outgoing],
            tag,
        )
        self.bytes_sent += rows.numel() * rows.element_size()
        return _Transfer(works, rows, incoming, self.clock)


class SynchronousBlocking(Synchronous):
    """cd-0 that waits for its rows as soon as it has sent its own, to measure what overlap hides.

    The same rows travel in the same messages, so that every bit is that of `Synchronous`.
    """

    def begin(
        self, route: Route, rows: Tensor, channel: int, picked: Tensor | None = None
    ) -> Arrival:
        """Do one half of an exchange; see `Exchange.begin`."""
        arriving = super().begin(route, rows, channel, picked)
        arriving.wait()
        return arriving


class _Transfer:
    """A transfer under way; holds the outgoing rows so that they outlive the sends."""

    def __init__(self, works: list[Work], rows: Tensor, incoming: Tensor, clock: Clock) -> None:
        self._works = works
        self._rows = rows
        self._incoming = incoming
        self._clock = clock

    def wait(self) -> Tensor:
        with self._clock.timed("exchange_wait"):
            for work in self._works:
                work.wait()
        self._works.clear()
        return self._incoming
