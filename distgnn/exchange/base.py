"""The contract of an exchange, and the synchronous one (cd-0)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from distgnn import kernels
from distgnn.exchange.checks import NoChecks
from distgnn.exchange.clock import Clock
from distgnn.exchange.codec import EXACT_CODECS
from distgnn.exchange.coder import coder_of
from distgnn.exchange.route import buffer_like
from distgnn.exchange.tags import MAX_CHANNELS
from distgnn.kernels.devices import PROCESSOR
from distgnn.kernels.seeds import MaskSeeds
from distgnn.ops.buffers import Buffers

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor

    from distgnn.comm.group import Group, Work
    from distgnn.exchange.codec import Bits, CodecSpec, HaloCodecs
    from distgnn.exchange.coder import Coder, SquaredError
    from distgnn.exchange.route import Route


class Arrival(Protocol):
    """Rows under way to this rank."""

    def wait(self) -> Tensor:
        """Return the (num_in, width) incoming rows; they stay valid until the next epoch."""

    def add_to(self, total: Tensor, places: Tensor) -> None:
        """Wait, and add the incoming rows where they belong, in their order.

        Args:
            total: (num_rows, width). Row places[k] is added incoming row k.
            places: (num_in,) int32. May repeat.
        """


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
        codecs: Codes that rows are written in.
        checks: Says whether messages carry checksums.
        seeds: Seeds of random rounding. A run gives those that know its seed and epoch, so that
            rounding needs no state in a checkpoint.
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
        self.codecs = EXACT_CODECS
        self.seeds = MaskSeeds()
        self._errors: dict[int, SquaredError] = {}
        self._num_bits = self._num_values = 0
        self._num_channels = 0
        self.checks = NoChecks()
        self._num_passes = {False: 0, True: 0}

    @abstractmethod
    def begin(
        self,
        route: Route,
        rows: Tensor,
        channel: int,
        picked: Tensor | None = None,
        *,
        exact_columns: int = 0,
        least_bits: Bits = 1,
    ) -> Arrival:
        """Start one half of an exchange.

        Args:
            route: Who gets how many rows.
            rows: (num_out, width), packed by peer; must stay unchanged until the arrival was
                waited for. With `picked`, a table of any number of rows, read here and now.
            channel: From `new_channel`.
            picked: (num_out,) int32. Row of the table that stands in each row of the packed
                buffer; the same in every epoch. None if the rows are packed.
            exact_columns: Number of trailing columns that travel as they are, whatever the code.
            least_bits: Bits of a value that a code has at least.

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
        self._num_passes[is_backward] += 1
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
        self._num_passes = {False: 0, True: 0}

    def transfer(
        self,
        incoming: Sequence[tuple[Tensor, int]],
        outgoing: Sequence[tuple[Tensor, int]],
        tag: int,
    ) -> list[Work]:
        """Start all messages of a channel, and check them if a run asks for that.

        Args:
            incoming: Tensors to receive into, each with its peer.
            outgoing: Tensors to send, each with its peer.
            tag: Tag of the messages.

        Returns:
            Messages under way; wait for each.
        """
        way = "backward" if self.is_backward else "forward"
        count = self._num_passes[self.is_backward]
        what = f"aggregation {count} of the {way} pass" if count else "a look-up"
        return self.checks.transfer(self.group, incoming, outgoing, tag, what)

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

    def take_codec_error(self) -> float:
        """Return how far codes were from the rows that they stand for, since the last call.

        Returns:
            Root of the squared error by the squared rows, from a sample of the rows of each
            message: that of the worst message of this rank. 0 where rows travel as they are.
        """
        errors, self._errors = self._errors, {}
        return max((error.relative for error in errors.values()), default=0.0)

    def take_codec_bits(self) -> tuple[int, int]:
        """Return the bits of codes that this rank sent, and of how many values.

        Both are since the last call. Values that travel as they are do not count.
        """
        found = self._num_bits, self._num_values
        self._num_bits = self._num_values = 0
        return found

    def _count(self, coder: Coder, count: int) -> None:
        """Count the codes of a message that leaves."""
        bits, values = coder.num_bits(count)
        self._num_bits += bits
        self._num_values += values

    def wire_seed(self, channel: int) -> int:
        """Return the seed of the rounding of this rank's message.

        Ranks round apart, or the errors of partials of one vertex might add up.

        Args:
            channel: Number of the message's channel.
        """
        return self.seeds.wire_seed(channel * self.group.size + self.group.rank)

    def state(self) -> dict[str, Tensor]:
        """Return the rows that a later epoch will use, by name; complete after `wait`."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned at the end of an epoch, on the same rank."""
        assert not state, "a synchronous exchange keeps no rows between epochs"


class Synchronous(Exchange):
    """cd-0: every row travels in every epoch and is used in the same one.

    Args:
        group: The ranks.
        codecs: Codes that rows are written in; by default they travel as they are.
        first_tag: See `Exchange`.
        device: See `Exchange`.
    """

    def __init__(
        self,
        group: Group,
        codecs: HaloCodecs = EXACT_CODECS,
        *,
        first_tag: int = 0,
        device: torch.device = PROCESSOR,
    ) -> None:
        super().__init__(group, first_tag=first_tag, device=device)
        self.codecs = codecs

    def begin(
        self,
        route: Route,
        rows: Tensor,
        channel: int,
        picked: Tensor | None = None,
        *,
        exact_columns: int = 0,
        least_bits: Bits = 1,
    ) -> Arrival:
        """Start one half of an exchange; see `Exchange.begin`."""
        spec = self._spec().at_least(least_bits)
        coder = self._coder(spec, route, rows, channel, picked, exact_columns)
        if coder is not None:
            packed, incoming = self._code(coder, route, rows, channel, picked)
        else:
            packed, incoming = rows, buffer_like(rows, route.num_in)
            if picked is not None:
                with self.clock.timed("pack"):
                    packed = self.buffers.empty(route.num_out, rows.shape[1], rows.dtype)
                    kernels.gather_rows(rows, picked, packed)
        # Rows of a channel have arrived long before its number comes again.
        tag = self.first_tag + channel % MAX_CHANNELS
        leaving, arriving = (_slice, _slice) if coder is None else (coder.leaving, coder.arriving)
        works = self.transfer(
            [(arriving(incoming, part.start, part.stop), part.peer) for part in route.incoming],
            [(leaving(packed, part.start, part.stop), part.peer) for part in route.outgoing],
            tag,
        )
        self.bytes_sent += packed.numel() * packed.element_size()
        return _Transfer(works, packed, incoming, coder, self.clock)

    def _spec(self) -> CodecSpec:
        """Return the code of the pass that is under way."""
        return self.codecs.at(self.seeds.epoch).of(is_backward=self.is_backward)

    def _coder(
        self,
        spec: CodecSpec,
        route: Route,
        rows: Tensor,
        channel: int,
        picked: Tensor | None,
        exact_columns: int,
    ) -> Coder | None:
        """Return what packs and unpacks a message; None where rows travel as they are."""
        del route, channel, picked
        return coder_of(spec, rows, exact_columns, self.buffers)

    def _code(
        self, coder: Coder, route: Route, rows: Tensor, channel: int, picked: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the codes of the rows that leave, and memory for the codes that arrive."""
        seed = self.wire_seed(channel)
        with self.clock.timed("pack"):
            packed = coder.pack(rows, picked, route.num_out, seed)
            if route.num_out:
                self._errors[channel] = coder.error(rows, picked, packed)
            self._count(coder, route.num_out)
            return packed, coder.landing(route.num_in)


def _slice(rows: Tensor, start: int, stop: int) -> Tensor:
    return rows[start:stop]


class SynchronousBlocking(Synchronous):
    """cd-0 that waits for its rows as soon as it has sent its own, to measure what overlap hides.

    The same rows travel in the same messages, so that every bit is that of `Synchronous`.
    """

    def begin(
        self,
        route: Route,
        rows: Tensor,
        channel: int,
        picked: Tensor | None = None,
        *,
        exact_columns: int = 0,
        least_bits: Bits = 1,
    ) -> Arrival:
        """Do one half of an exchange; see `Exchange.begin`."""
        arriving = super().begin(
            route, rows, channel, picked, exact_columns=exact_columns, least_bits=least_bits
        )
        arriving.wait()
        return arriving


class _Transfer:
    """A transfer under way; holds what leaves, so that it outlives the sends."""

    def __init__(
        self,
        works: list[Work],
        packed: Tensor,
        incoming: Tensor,
        coder: Coder | None,
        clock: Clock,
    ) -> None:
        self._works = works
        self._packed = packed
        self._incoming = incoming
        self._coder = coder
        self._clock = clock

    def wait(self) -> Tensor:
        self._finish()
        if self._coder is not None:
            with self._clock.timed("pack"):
                self._incoming = self._coder.unpack(self._incoming)
            # A second wait finds rows.
            self._coder = None
        return self._incoming

    def add_to(self, total: Tensor, places: Tensor) -> None:
        if self._coder is None or not self._coder.adds_to(total):
            received = self.wait()
            with self._clock.timed("pack"):
                kernels.scatter_add_rows(received, places, total)
            return
        self._finish()
        with self._clock.timed("pack"):
            self._coder.add_to(total, self._incoming, places)

    def _finish(self) -> None:
        with self._clock.timed("exchange_wait"):
            for work in self._works:
                work.wait()
        self._works.clear()
