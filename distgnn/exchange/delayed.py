"""cd-R and its relatives: rows that are used epochs after they were made, so that nobody waits."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from distgnn import kernels
from distgnn.datasets.errors import InputError
from distgnn.exchange.base import Arrival, Exchange
from distgnn.exchange.turns import Turns
from distgnn.kernels.devices import PROCESSOR

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.comm.group import Group, Work
    from distgnn.exchange.route import Route
    from distgnn.exchange.rule import DelayCache, DelayRule
    from distgnn.exchange.turns import PeerRows, Turn


class _Buffers(NamedTuple):
    """Memory of one message, long enough for every bin."""

    outgoing: Tensor
    incoming: Tensor


@dataclass
class _Message:
    """Rows of one channel, from the epoch they were sent in until the epoch they are used in."""

    epoch: int
    incoming: Tensor
    is_whole: bool = False
    works: list[Work] = field(default_factory=list)
    buffers: _Buffers | None = None

    def finish(self) -> Tensor:
        for work in self.works:
            work.wait()
        self.works.clear()
        return self.incoming


class _Heard(NamedTuple):
    """The newest rows of a bin: when they were sent, and how many values went into them."""

    epoch: int
    num_values: int


@dataclass
class _Loaded:
    """A channel as a checkpoint has it, until the first rows show its route."""

    received: Tensor
    heard: dict[int, _Heard]
    under_way: deque[_Message]

    def to(self, device: torch.device) -> _Loaded:
        messages = (
            replace(message, incoming=message.incoming.to(device)) for message in self.under_way
        )
        return _Loaded(self.received.to(device), self.heard, deque(messages))


class _Channel:
    """State of one half of one aggregation between epochs.

    Args:
        turns: Its index lists.
        memory: Rule for rows that arrive.
        like: (any, width). Rows of its width and type.
        loaded: From a checkpoint, or None for one that heard nothing yet.
    """

    def __init__(
        self, turns: Turns, memory: DelayCache, like: Tensor, loaded: _Loaded | None
    ) -> None:
        self.turns = turns
        self.memory = memory
        self.is_backward = False
        self._spare: list[_Buffers] = []
        if loaded is None:
            empty = like.new_zeros((turns.whole.num_received, like.shape[1]))
            loaded = _Loaded(empty, {}, deque())
        self.received = loaded.received
        self.heard = loaded.heard
        self.under_way = loaded.under_way

    def spare(self) -> _Buffers:
        """Return memory for a message; that of one that has been used, if there is."""
        if self._spare:
            return self._spare.pop()
        width = self.received.shape[1]
        return _Buffers(
            self.received.new_empty((self.turns.most_sent, width)),
            self.received.new_empty((self.turns.most_received, width)),
        )

    def take_in(self, message: _Message, sent_at: int) -> None:
        """Put what arrived where it belongs."""
        if message.is_whole:
            for bin_id, turn in enumerate(self.turns.bins):
                if turn.num_received:
                    self.heard[bin_id] = _Heard(sent_at, 1)
            return
        bin_id = message.epoch % len(self.turns.bins)
        turn = self.turns.bins[bin_id]
        if turn.num_received:
            count = self.heard[bin_id].num_values + 1 if bin_id in self.heard else 1
            self.heard[bin_id] = _Heard(sent_at, count)
            assert turn.places is not None, "the rows of a bin have places"
            smoothing = self.memory.smoothing
            # The average, divided by the sum of its weights, moves by this share.
            weight = (1 - smoothing) / (1 - smoothing**count)
            kernels.blend_rows(
                _movable(message.incoming), turn.places, _movable(self.received), weight=weight
            )
        if message.buffers is not None:
            self._spare.append(message.buffers)

    def forget(self) -> None:
        """Drop what arrived in earlier epochs."""
        self.received.zero_()
        self.heard.clear()

    def repeat(self, epochs: range) -> None:
        """Let rows that were received just now arrive again, as if sent in these epochs."""
        for epoch in epochs:
            turn = self.turns.bins[epoch % len(self.turns.bins)]
            assert turn.places is not None, "the rows of a bin have places"
            incoming = self.received.new_empty((turn.num_received, self.received.shape[1]))
            kernels.gather_rows(_movable(self.received), turn.places, _movable(incoming))
            self.under_way.append(_Message(epoch, incoming))


class Delayed(Exchange):
    """DistGNN's delayed remote partial aggregates, cd-R, and PipeGCN, which is one bin and delay 1.

    In epoch e the rows of bin e mod num_bins are sent; they are used from epoch e + delay on. With
    the cache, a row between its turns keeps the value received last, and its age is at most
    delay + num_bins - 1 epochs. A row that never arrived counts as zeros. Without it, as in the
    paper, a row contributes only in the epoch in which it arrives. Gradients travel back so too.

    The epochs of a warm-up are synchronous. Later epochs find what these received last until newer
    rows arrive: with the cache all of it, without it the bins whose turn it is.

    DistGNN delays the sum of partials only and passes no gradient across the cut. Here both halves
    and both directions are delayed, because the update runs at roots alone. PipeGCN's smoothed
    averages start at zeros; here they are corrected for their start.

    Args:
        group: The ranks.
        rule: Bins, delay, warm-up, and what is made of rows that arrive.
        first_tag: See `Exchange`.
        device: See `Exchange`.

    References:
        Md et al., "DistGNN: Scalable Distributed Training for Large-Scale Graph Neural Networks",
        SC 2021, section 5.3, algorithm 4.
        Wan et al., "PipeGCN: Efficient Full-Graph Training of Graph Convolutional Networks with
        Pipelined Feature Communication", ICLR 2022.
    """

    def __init__(
        self,
        group: Group,
        rule: DelayRule,
        *,
        first_tag: int = 0,
        device: torch.device = PROCESSOR,
    ) -> None:
        super().__init__(group, first_tag=first_tag, device=device)
        assert rule.num_bins >= 1, "a delayed exchange has at least one bin"
        assert rule.delay >= 0, "rows cannot be used before they were sent"
        for memory in (rule.forward, rule.backward):
            assert memory.is_cached or memory.smoothing == 0, "an average needs the last value"
        self.rule = rule
        self.epoch = 0
        self._channels: dict[int, _Channel] = {}
        self._loaded: dict[int, _Loaded] = {}

    def begin(
        self,
        route: Route,
        rows: Tensor,
        channel: int,
        picked: Tensor | None = None,
        *,
        exact_columns: int = 0,
    ) -> Arrival:
        """Send the rows whose turn it is; see `Exchange.begin`. All columns travel as they are."""
        del exact_columns
        state = self._channels.get(channel)
        if state is None:
            turns = Turns(route, picked, self.rule.num_bins, device=rows.device)
            memory = self.rule.backward if self.is_backward else self.rule.forward
            loaded = self._loaded.pop(channel, None)
            loaded = None if loaded is None else loaded.to(rows.device)
            state = _Channel(turns, memory, rows, loaded)
            self._channels[channel] = state
            state.is_backward = self.is_backward
        elif (self.is_backward, rows.shape[1]) != (state.is_backward, state.received.shape[1]):
            raise InputError(
                f"message {channel} of the graph with delays is another one in epoch {self.epoch} "
                "than before; run the model once an epoch on the graph that it trains on, and "
                "evaluate on an exact one"
            )
        send = self._send_whole if self._is_warming_up else self._send_bin
        state.under_way.append(send(state, rows, self.first_tag + channel))
        return _Delivery(self, state)

    def end_epoch(self) -> None:
        """Rotate the bins."""
        super().end_epoch()
        self.epoch += 1

    @property
    def _is_warming_up(self) -> bool:
        return self.epoch < self.rule.warm_up_epochs

    def _send_whole(self, state: _Channel, rows: Tensor, tag: int) -> _Message:
        """Send all rows, to be used at once; the rows of others go where they belong."""
        turn, outgoing = state.turns.whole, rows
        if turn.picked is not None:
            outgoing = self.buffers.empty(turn.num_sent, rows.shape[1], rows.dtype)
        buffers = _Buffers(outgoing, state.received)
        works = self._send(turn, rows, tag, buffers)
        return _Message(self.epoch, state.received, is_whole=True, works=works, buffers=buffers)

    def _send_bin(self, state: _Channel, rows: Tensor, tag: int) -> _Message:
        turn, buffers = state.turns.bins[self.epoch % self.rule.num_bins], state.spare()
        works = self._send(turn, rows, tag, buffers)
        incoming = buffers.incoming[: turn.num_received]
        return _Message(self.epoch, incoming, works=works, buffers=buffers)

    def _send(self, turn: Turn, rows: Tensor, tag: int, buffers: _Buffers) -> list[Work]:
        """Pack the rows and start all messages."""
        if turn.picked is not None:
            with self.clock.timed("pack"):
                packed = buffers.outgoing[: turn.num_sent]
                kernels.gather_rows(_movable(rows), turn.picked, _movable(packed))
        works = self.group.transfer(
            [(_lane(buffers.incoming, lane), lane.peer) for lane in turn.incoming],
            [(_lane(buffers.outgoing, lane), lane.peer) for lane in turn.outgoing],
            tag,
        )
        self.bytes_sent += turn.num_sent * rows.shape[1] * rows.element_size()
        return works

    def deliver(self, state: _Channel) -> Tensor:
        """Take in what is due and return the rows that this epoch uses."""
        # The order of the steps below decides which values a row has, so it is not free.
        # 1. Without a cache (the paper's rule), rows of earlier epochs are dropped before anything
        #    new is taken in. In a warm-up they are not: all rows are overwritten then.
        # 2. Messages are taken in by the age of their sending, and only those that are `delay`
        #    epochs old. The sender put its row into the same bin, because both number the rows of
        #    all pairs alike. So each rank uses the rows of the same epoch, whether or not newer
        #    ones have arrived already: a fast network changes no bit of the result.
        # 3. The wait is for messages that left `delay` epochs ago, which is what a delay buys.
        #    Their buffers are free only after it: `take_in` hands them to the next message.
        # 4. After the last epoch of a warm-up, rows that arrived whole are queued once more as if
        #    sent in the `delay` epochs before, or the first epochs without a cache would find none.
        last_warm = self.rule.warm_up_epochs - 1
        if not state.memory.is_cached and not self._is_warming_up:
            with self.clock.timed("pack"):
                state.forget()
        while state.under_way and self._is_due(state.under_way[0]):
            message = state.under_way.popleft()
            with self.clock.timed("exchange_wait"):
                message.finish()
            with self.clock.timed("pack"):
                # What a warm-up leaves is as old as its last epoch.
                state.take_in(message, max(message.epoch, last_warm))
        if not state.memory.is_cached and self.epoch == last_warm:
            with self.clock.timed("pack"):
                state.repeat(range(self.epoch + 1 - self.rule.delay, self.epoch + 1))
        for heard in state.heard.values():
            self.max_staleness = max(self.max_staleness, self.epoch - heard.epoch)
        return state.received

    def _is_due(self, message: _Message) -> bool:
        return message.is_whole or message.epoch + self.rule.delay <= self.epoch

    def state(self) -> dict[str, Tensor]:
        """Return received rows and messages under way; waits until all of them arrived."""
        tensors = {"epoch": torch.tensor([self.epoch, self.max_staleness])}
        for number, channel in (self._loaded | self._channels).items():
            tensors[f"{number}.received"] = channel.received
            heard = [(bin_id, *channel.heard[bin_id]) for bin_id in sorted(channel.heard)]
            tensors[f"{number}.bin_epoch"] = torch.tensor(heard, dtype=torch.int64).reshape(-1, 3)
            for message in channel.under_way:
                tensors[f"{number}.message.{message.epoch}"] = message.finish()
        return tensors

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        self.epoch, self.max_staleness = state["epoch"].tolist()
        self._channels, self._loaded = {}, {}
        for name in [name for name in state if name.endswith(".received")]:
            number = name.split(".")[0]
            heard = {
                bin_id: _Heard(epoch, count)
                for bin_id, epoch, count in state[f"{number}.bin_epoch"].tolist()
            }
            prefix = f"{number}.message."
            epochs = sorted(int(key[len(prefix) :]) for key in state if key.startswith(prefix))
            under_way = deque(_Message(e, state[f"{prefix}{e}"].clone()) for e in epochs)
            self._loaded[int(number)] = _Loaded(state[name].clone(), heard, under_way)


def _lane(buffer: Tensor, lane: PeerRows) -> Tensor:
    return buffer[lane.start : lane.stop]


def _movable(rows: Tensor) -> Tensor:
    """Let kernels for floats move whole numbers of 64 bits, which they copy bit by bit."""
    return rows if rows.is_floating_point() else rows.view(torch.float64)


class _Delivery:
    """The rows of one delayed channel, taken in when they are needed."""

    def __init__(self, exchange: Delayed, channel: _Channel) -> None:
        self._exchange = exchange
        self._channel = channel

    def wait(self) -> Tensor:
        return self._exchange.deliver(self._channel)

    def add_to(self, total: Tensor, places: Tensor) -> None:
        received = self.wait()
        with self._exchange.clock.timed("pack"):
            kernels.scatter_add_rows(received, places, total)
