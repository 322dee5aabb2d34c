"""cd-R and its relatives: rows that are used epochs after they were made, so that nobody waits."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from distgnn import kernels
from distgnn.datasets.errors import InputError
from distgnn.exchange.base import Arrival, Exchange
from distgnn.exchange.coder import coder_of
from distgnn.exchange.turns import Turns
from distgnn.kernels.devices import PROCESSOR

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.comm.group import Group, Work
    from distgnn.exchange.coder import Coder
    from distgnn.exchange.route import Route
    from distgnn.exchange.rule import HaloRule, Rule
    from distgnn.exchange.turns import PeerRows, Turn


class _Buffers(NamedTuple):
    """Memory of one message, long enough for every turn."""

    outgoing: Tensor
    incoming: Tensor


@dataclass
class _Message:
    """Rows of one channel, from the epoch they were sent in until the epoch they are used in."""

    epoch: int
    incoming: Tensor
    is_whole: bool = False
    is_coded: bool = False
    turn: Turn | None = None
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
    told: Tensor | None = None

    def to(self, device: torch.device) -> _Loaded:
        messages = (
            replace(message, incoming=message.incoming.to(device)) for message in self.under_way
        )
        told = None if self.told is None else self.told.to(device)
        return _Loaded(self.received.to(device), self.heard, deque(messages), told)


class _Channel:
    """State of one half of one aggregation between epochs.

    Args:
        turns: Its index lists.
        rule: Rule of its direction.
        like: (any, width). Rows of its width and type.
        coder: Packs and unpacks rows; None where they travel as they are.
        loaded: From a checkpoint, or None for one that heard nothing yet.

    Attributes:
        told: (num_out, width). Memory of the sender's code: values that the receiver has, or errors
            that it is still to be told; None where the code remembers nothing.
    """

    def __init__(
        self, turns: Turns, rule: Rule, like: Tensor, coder: Coder | None, loaded: _Loaded | None
    ) -> None:
        self.turns = turns
        self.rule = rule
        self.coder = coder
        self.is_backward = False
        self._spare: list[_Buffers] = []
        if loaded is None:
            empty = like.new_zeros((turns.whole.num_received, like.shape[1]))
            loaded = _Loaded(empty, {}, deque())
        self.received = loaded.received
        self.heard = loaded.heard
        self.under_way = loaded.under_way
        self.told = loaded.told
        if self.told is None and coder is not None and rule.remembers != "nothing":
            self.told = like.new_zeros((turns.whole.num_sent, like.shape[1]))

    def spare(self) -> _Buffers:
        """Return memory for a message; that of one that has been used, if there is."""
        if self._spare:
            return self._spare.pop()
        width, dtype = self.received.shape[1], self.received.dtype
        if self.coder is not None:
            width, dtype = self.coder.row_bytes, torch.uint8
        outgoing, incoming = (
            self.received.new_empty((count, width), dtype=dtype)
            for count in (self.turns.most_sent, self.turns.most_received)
        )
        return _Buffers(outgoing, incoming)

    def take_in(self, message: _Message, sent_at: int) -> None:
        """Put what arrived where it belongs."""
        if message.is_whole:
            for bin_id in self.turns.groups:
                self.heard[bin_id] = _Heard(sent_at, 1)
            return
        turn = self._turn_of(message)
        if turn.num_received:
            group = self.turns.group_of(message.epoch)
            count = self.heard[group].num_values + 1 if group in self.heard else 1
            self.heard[group] = _Heard(sent_at, count)
            assert turn.places is not None, "the rows of a turn have places"
            smoothing = self.rule.smoothing
            # The average, divided by the sum of its weights, moves by this share. Rows without a
            # cache are blended into zeros, so that a weight above 1 scales them.
            scale = self.rule.deal.period if self.rule.is_scaled else 1
            weight = scale * (1 - smoothing) / (1 - smoothing**count)
            self._blend(message, turn.places, weight)
        self.release(message)

    def _turn_of(self, message: _Message) -> Turn:
        return self.turns.at(message.epoch) if message.turn is None else message.turn

    def _blend(self, message: _Message, places: Tensor, weight: float) -> None:
        incoming = message.incoming
        if self.coder is None or not message.is_coded:
            kernels.blend_rows(_movable(incoming), places, _movable(self.received), weight=weight)
        elif self.rule.remembers == "value":
            # The change against what was told before; the sender adds the same to what it told.
            changed = self.coder.unpack(incoming)
            known = torch.empty_like(changed)
            kernels.gather_rows(self.received, places, known)
            kernels.blend_rows(known.add_(changed), places, self.received, weight=1)
        else:
            self.coder.blend(incoming, self.received, places, weight)

    def release(self, message: _Message) -> None:
        """Let a message's memory be used again."""
        if message.buffers is not None and not message.is_whole:
            self._spare.append(message.buffers)

    def overtake(self) -> None:
        """Drop messages that are under way: newer rows arrive whole."""
        while self.under_way:
            message = self.under_way.popleft()
            message.finish()
            self.release(message)

    def forget(self) -> None:
        """Drop what arrived in earlier epochs."""
        self.received.zero_()
        self.heard.clear()

    def repeat(self, epochs: range) -> None:
        """Let rows that were received just now arrive again, as if sent in these epochs."""
        for epoch in epochs:
            turn = self.turns.at(epoch)
            assert turn.places is not None, "the rows of a turn have places"
            incoming = self.received.new_empty((turn.num_received, self.received.shape[1]))
            kernels.gather_rows(_movable(self.received), turn.places, _movable(incoming))
            self.under_way.append(_Message(epoch, incoming, turn=turn))


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
        rule: HaloRule,
        *,
        first_tag: int = 0,
        device: torch.device = PROCESSOR,
    ) -> None:
        super().__init__(group, first_tag=first_tag, device=device)
        for way in (rule.forward, rule.backward):
            assert way.deal.period >= 0, "a deal has bins, or none if no row ever travels"
            assert way.delay >= 0, "rows cannot be used before they were sent"
            assert way.is_cached or way.smoothing == 0, "an average needs the last value"
            assert way.is_cached or way.remembers != "value", "a change needs the last value"
        self.rule = rule
        self.codecs = rule.codecs
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
        """Send the rows whose turn it is; see `Exchange.begin`."""
        state = self._channels.get(channel)
        if state is None:
            rule = self.rule.of(is_backward=self.is_backward)
            place = (self.group.rank, self.group.size)
            turns = Turns(route, picked, rule.deal, *place, device=rows.device)
            loaded = self._loaded.pop(channel, None)
            loaded = None if loaded is None else loaded.to(rows.device)
            coder = coder_of(rule.codec, rows, exact_columns, self.buffers)
            state = _Channel(turns, rule, rows, coder, loaded)
            self._channels[channel] = state
            state.is_backward = self.is_backward
        elif (self.is_backward, rows.shape[1]) != (state.is_backward, state.received.shape[1]):
            raise InputError(
                f"message {channel} of the graph with delays is another one in epoch {self.epoch} "
                "than before; run the model once an epoch on the graph that it trains on, and "
                "evaluate on an exact one"
            )
        send = self._send_whole if self._is_whole(self.epoch, state) else self._send_turn
        message = send(state, rows, channel)
        state.under_way.append(message)
        return _Delivery(self, state)

    def end_epoch(self) -> None:
        """Rotate the bins."""
        super().end_epoch()
        self.epoch += 1

    def _is_whole(self, epoch: int, state: _Channel) -> bool:
        return self.rule.is_whole(epoch, is_backward=state.is_backward)

    def _send_whole(self, state: _Channel, rows: Tensor, channel: int) -> _Message:
        """Send all rows, to be used at once; the rows of others go where they belong."""
        state.overtake()
        turn, outgoing = state.turns.whole, rows
        if turn.picked is not None:
            outgoing = self.buffers.empty(turn.num_sent, rows.shape[1], rows.dtype)
            self._gather(rows, turn, outgoing)
        if state.told is not None:
            # The receiver knows every value now, and no error is left.
            is_value = state.rule.remembers == "value"
            state.told.copy_(outgoing[: turn.num_sent]) if is_value else state.told.zero_()
        buffers = _Buffers(outgoing, state.received)
        works = self._transfer(turn, channel, buffers)
        return _Message(self.epoch, state.received, is_whole=True, works=works, buffers=buffers)

    def _send_turn(self, state: _Channel, rows: Tensor, channel: int) -> _Message:
        turn, buffers = state.turns.at(self.epoch), state.spare()
        outgoing = buffers.outgoing[: turn.num_sent]
        if state.coder is None:
            self._gather(rows, turn, outgoing)
        elif turn.num_sent:
            with self.clock.timed("pack"):
                self._code(state, state.coder, rows, turn, channel, outgoing)
        works = self._transfer(turn, channel, buffers)
        return _Message(
            self.epoch,
            buffers.incoming[: turn.num_received],
            is_coded=state.coder is not None,
            turn=turn,
            works=works,
            buffers=buffers,
        )

    def _code(
        self,
        state: _Channel,
        coder: Coder,
        rows: Tensor,
        turn: Turn,
        channel: int,
        out: Tensor,
    ) -> None:
        """Write the rows of a turn in the channel's code, with what it remembers of them."""
        seed = self.wire_seed(channel)
        count = turn.num_sent
        self._count(coder, count)
        if state.told is None:
            coder.pack(rows, turn.picked, count, seed, out=out)
            self._errors[channel] = coder.error(rows, turn.picked, out)
            return
        assert turn.picked is not None, "the rows of a turn are picked"
        assert turn.packed is not None, "the rows of a turn have places"
        now, known = (self.buffers.empty(count, rows.shape[1], rows.dtype) for _ in range(2))
        kernels.gather_rows(rows, turn.picked, now)
        kernels.gather_rows(state.told, turn.packed, known)
        is_value = state.rule.remembers == "value"
        now = now.sub_(known) if is_value else now.add_(known)
        coder.pack(now, None, count, seed, out=out)
        self._errors[channel] = coder.error(now, None, out)
        read = coder.unpack(out)
        told = known.add_(read) if is_value else now.sub_(read)
        kernels.blend_rows(told, turn.packed, state.told, weight=1)

    def _gather(self, rows: Tensor, turn: Turn, out: Tensor) -> None:
        if turn.picked is not None:
            with self.clock.timed("pack"):
                packed = out[: turn.num_sent]
                kernels.gather_rows(_movable(rows), turn.picked, _movable(packed))

    def _transfer(self, turn: Turn, channel: int, buffers: _Buffers) -> list[Work]:
        """Start all messages of a turn."""
        works = self.group.transfer(
            [(_lane(buffers.incoming, lane), lane.peer) for lane in turn.incoming],
            [(_lane(buffers.outgoing, lane), lane.peer) for lane in turn.outgoing],
            self.first_tag + channel,
        )
        width = buffers.outgoing.shape[1]
        self.bytes_sent += turn.num_sent * width * buffers.outgoing.element_size()
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
        # 4. After the last epoch of a warm-up, and after a refresh, rows that arrived whole are
        #    queued once more as if sent in the `delay` epochs before, or the epochs that follow
        #    would find none without a cache. With one, what is under way then is older than what
        #    arrived, so it was dropped when the whole rows left.
        is_whole = self._is_whole(self.epoch, state)
        is_last_whole = is_whole and not self._is_whole(self.epoch + 1, state)
        last_warm = self.rule.warm_up_epochs - 1
        if not state.rule.is_cached and not is_whole:
            with self.clock.timed("pack"):
                state.forget()
        while state.under_way and self._is_due(state.under_way[0], state.rule):
            message = state.under_way.popleft()
            with self.clock.timed("exchange_wait"):
                message.finish()
            with self.clock.timed("pack"):
                # What a warm-up leaves is as old as its last epoch.
                state.take_in(message, max(message.epoch, last_warm))
        if not state.rule.is_cached and is_last_whole:
            with self.clock.timed("pack"):
                state.repeat(range(self.epoch + 1 - state.rule.delay, self.epoch + 1))
        for heard in state.heard.values():
            self.max_staleness = max(self.max_staleness, self.epoch - heard.epoch)
        return state.received

    def _is_due(self, message: _Message, rule: Rule) -> bool:
        return message.is_whole or message.epoch + rule.delay <= self.epoch

    def state(self) -> dict[str, Tensor]:
        """Return received rows and messages under way; waits until all of them arrived."""
        tensors = {"epoch": torch.tensor([self.epoch, self.max_staleness])}
        for number, channel in (self._loaded | self._channels).items():
            tensors[f"{number}.received"] = channel.received
            heard = [(bin_id, *channel.heard[bin_id]) for bin_id in sorted(channel.heard)]
            tensors[f"{number}.bin_epoch"] = torch.tensor(heard, dtype=torch.int64).reshape(-1, 3)
            for message in channel.under_way:
                kind = "codes" if message.is_coded else "message"
                tensors[f"{number}.{kind}.{message.epoch}"] = message.finish()
            if channel.told is not None:
                tensors[f"{number}.told"] = channel.told
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
            under_way = [
                _Message(int(key.split(".")[2]), rows.clone(), is_coded=kind == "codes")
                for kind in ("message", "codes")
                for key, rows in state.items()
                if key.startswith(f"{number}.{kind}.")
            ]
            under_way.sort(key=lambda message: message.epoch)
            told = state.get(f"{number}.told")
            self._loaded[int(number)] = _Loaded(
                state[name].clone(), heard, deque(under_way), None if told is None else told.clone()
            )


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
