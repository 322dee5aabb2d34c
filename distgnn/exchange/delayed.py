"""cd-R and its relatives: rows that are used epochs after they were made, so that nobody waits."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import torch

from distgnn import kernels
from distgnn.datasets.errors import InputError
from distgnn.exchange.base import Arrival, Exchange
from distgnn.exchange.channel import MORE, Channel, Heard, Loaded, Message, MessageBuffers, movable
from distgnn.exchange.coder import coder_of
from distgnn.exchange.masks import (
    leaving,
    mask_bytes,
    of_chosen,
    read_masks,
    write_masks,
)
from distgnn.exchange.turns import PeerRows, Turns
from distgnn.exchange.votes import Votes
from distgnn.kernels.devices import PROCESSOR

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.comm.group import Group, Work
    from distgnn.exchange.codec import Bits
    from distgnn.exchange.coder import Coder
    from distgnn.exchange.route import Route
    from distgnn.exchange.rule import HaloRule, Rule
    from distgnn.exchange.turns import Turn


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
            assert way.is_cached or not way.tells_values, "a change needs the last value"
            assert way.spared is None or way.remembers != "error", "what was told holds the error"
            assert way.spared is None or way.smoothing == 0, "senders know no averages"
            is_asked = way.spared is not None and not way.spared.is_counted
            assert not (is_asked and way.delay), "rows are asked for in the epoch of their masks"
            assert not (way.has_trend and way.delay), "both ends move rows on in the same epoch"
            if is_asked and group.backend == "nccl":
                raise InputError(
                    "--halo changed or budget sends messages whose size the one before tells, "
                    "which --backend nccl cannot match; use --backend gloo, or best"
                )
        self.rule = rule
        self.codecs = rule.codecs
        self.epoch = 0
        ways = {"forward": rule.forward, "backward": rule.backward}
        self._votes = {name: Votes(way.gate, way.limit, group.size) for name, way in ways.items()}
        self._channels: dict[int, Channel] = {}
        self._loaded: dict[int, Loaded] = {}

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
        """Send the rows whose turn it is; see `Exchange.begin`."""
        state = self._channels.get(channel)
        if state is None:
            rule = self.rule.of(is_backward=self.is_backward)
            _refuse_others_than_sums(rule, rows, exact_columns)
            place = (self.group.rank, self.group.size)
            turns = Turns(route, picked, rule.deal, *place, device=rows.device)
            loaded = self._loaded.pop(channel, None)
            loaded = None if loaded is None else loaded.to(rows.device)
            codec = rule.codec.at_least(least_bits)
            coder = coder_of(codec, rows, exact_columns, self.buffers)
            state = Channel(turns, rule, rows, coder, loaded)
            self._channels[channel] = state
            state.is_backward = self.is_backward
            state.exact_columns = exact_columns
        elif (self.is_backward, rows.shape[1]) != (state.is_backward, state.received.shape[1]):
            raise InputError(
                f"message {channel} of the graph with delays is another one in epoch {self.epoch} "
                "than before; run the model once an epoch on the graph that it trains on, and "
                "evaluate on an exact one"
            )
        is_whole = self._is_whole(self.epoch, state)
        gate = self._votes_of(state).gate
        if gate is not None:
            gate.note(*state.measure(rows))
            if not is_whole and not gate.is_open:
                state.move_on("told")  # as the receiver's rows do
                return _Delivery(self, state)
            state.note(rows)
        send = self._send_whole if is_whole else self._send_turn
        state.under_way.append(send(state, rows, channel))
        return _Delivery(self, state)

    def end_epoch(self) -> None:
        """Rotate the bins, and decide together about the next epoch where values do."""
        super().end_epoch()
        self._vote()
        self.epoch += 1

    def _votes_of(self, state: Channel) -> Votes:
        return self._votes["backward" if state.is_backward else "forward"]

    def _vote(self) -> None:
        """Share the figures of this rank, and let all of them decide; collective if there are."""
        own = {
            (way, name): voter.take_own()
            for way, votes in self._votes.items()
            for name, voter in votes.voters.items()
        }
        if not own:
            return
        values = [each for mine in own.values() for each in mine]
        figures = torch.tensor(values, dtype=torch.float64)
        with self.clock.timed("exchange_wait"):
            table = torch.stack(self.group.all_gather(figures))
        self.bytes_sent += (self.group.size - 1) * figures.nbytes
        parts = torch.split(table, [len(mine) for mine in own.values()], dim=1)
        for (way, name), part in zip(own, parts, strict=True):
            is_whole = self.rule.is_whole(self.epoch, is_backward=way == "backward")
            self._votes[way].voters[name].hear(part, self.epoch, is_whole=is_whole)

    def _since_whole(self, state: Channel) -> int:
        return self.rule.epochs_since_whole(self.epoch, is_backward=state.is_backward)

    def _is_whole(self, epoch: int, state: Channel) -> bool:
        return self.rule.is_whole(epoch, is_backward=state.is_backward)

    def _send_whole(self, state: Channel, rows: Tensor, channel: int) -> Message:
        """Send all rows, to be used at once; the rows of others go where they belong."""
        state.overtake()
        turn, outgoing = state.turns.whole, rows
        if turn.picked is not None:
            outgoing = self.buffers.empty(turn.num_sent, rows.shape[1], rows.dtype)
            self._gather(rows, turn, outgoing)
        if state.told is not None:
            # The receiver knows every value now, and no error is left.
            is_value = state.rule.tells_values
            state.told.copy_(outgoing[: turn.num_sent]) if is_value else state.told.zero_()
            state.renew("told", self._since_whole(state))
        buffers = MessageBuffers(outgoing, state.received)
        works = self._transfer(turn, channel, buffers)
        return Message(self.epoch, state.received, is_whole=True, works=works, buffers=buffers)

    def _send_turn(self, state: Channel, rows: Tensor, channel: int) -> Message:
        state.move_on("told")
        turn, buffers = state.turns.at(self.epoch), state.spare()
        message = Message(
            self.epoch,
            buffers.incoming[: turn.num_received],
            is_coded=state.coder is not None,
            turn=turn,
            buffers=buffers,
        )
        incoming = turn.incoming
        if state.rule.spared is not None:
            turn = self._announce(state, rows, channel, turn, message)
            incoming = ()
            if state.rule.spared.is_counted:
                incoming = _best_of(turn.incoming, state.rule.spared.best_of)
                message.incoming = buffers.incoming[: incoming[-1].stop if incoming else 0]
        outgoing = buffers.outgoing[: turn.num_sent]
        if state.coder is None:
            self._gather(rows, turn, outgoing)
        elif turn.num_sent:
            with self.clock.timed("pack"):
                self._code(state, state.coder, rows, turn, channel, outgoing)
        if state.rule.spared is not None and turn.num_sent:
            with self.clock.timed("pack"):
                self._tell(state, outgoing, turn)
        message.works += self._transfer(turn._replace(incoming=incoming), channel, buffers)
        return message

    def _announce(
        self, state: Channel, rows: Tensor, channel: int, turn: Turn, message: Message
    ) -> Turn:
        """Choose rows of a turn, and send a bit for each; return the turn with those that leave."""
        spared = state.rule.spared
        assert spared is not None, "rows are spared"
        assert state.told is not None, "spared rows are compared with what was told"
        assert turn.picked is not None, "the rows of a turn are picked"
        assert turn.packed is not None, "the rows of a turn have places"
        with self.clock.timed("pack"):
            now, known = (
                self.buffers.empty(turn.num_sent, rows.shape[1], rows.dtype) for _ in range(2)
            )
            if turn.num_sent:
                kernels.gather_rows(rows, turn.picked, now)
                kernels.gather_rows(state.told, turn.packed, known)
            governor = self._votes_of(state).governor
            if governor is None:
                epoch, exact = self._epochs_of_turns, state.exact_columns
                chosen = spared.choose(now, known, turn.outgoing, epoch, exact_columns=exact)
            else:
                width = rows.shape[1] * rows.element_size()
                row_bytes = width if state.coder is None else state.coder.row_bytes
                chosen = governor.choose(
                    now, known, turn.outgoing, row_bytes, exact_columns=state.exact_columns
                )
            leaves = write_masks(chosen, turn.outgoing)
        message.masks = torch.zeros(sum(mask_bytes(turn.incoming)), dtype=torch.uint8)
        works = self.transfer(
            _by_peer(message.masks, turn.incoming),
            _by_peer(leaves, turn.outgoing),
            self.first_tag + channel,
        )
        message.leaving_masks = leaves
        self.bytes_sent += len(leaves)
        if spared.is_counted:
            message.works += works
        else:
            message.ask = partial(self._ask, message, works, channel, turn)
        return leaving(turn, chosen)

    @property
    def _epochs_of_turns(self) -> int:
        """Epochs since the warm-up."""
        return max(self.epoch - self.rule.warm_up_epochs, 0)

    def _ask(self, message: Message, works: list[Work], channel: int, turn: Turn) -> None:
        """Wait for masks, and post the receives of the rows that they announce."""
        for work in works:
            work.wait()
        assert message.masks is not None, "masks announce rows"
        assert message.buffers is not None, "rows arrive in the buffers of their message"
        lanes = of_chosen(turn.incoming, read_masks(message.masks, turn.incoming))
        rows = message.buffers.incoming
        message.incoming = rows[: lanes[-1].stop if lanes else 0]
        arrivals = [(_lane(rows, lane), lane.peer) for lane in lanes]
        message.works += self.transfer(arrivals, [], self.first_tag + channel)

    def _tell(self, state: Channel, outgoing: Tensor, turn: Turn) -> None:
        """Note what the receivers of rows have now; `_code` does where changes are coded."""
        assert state.told is not None, "spared rows are compared with what was told"
        assert turn.packed is not None, "the rows of a turn have places"
        if state.coder is None or state.rule.remembers == "nothing":
            told = outgoing if state.coder is None else state.coder.unpack(outgoing)
            kernels.blend_rows(told, turn.packed, state.told, weight=1)

    def _code(
        self,
        state: Channel,
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
        if state.rule.remembers == "nothing":
            coder.pack(rows, turn.picked, count, seed, out=out)
            self._errors[channel] = coder.error(rows, turn.picked, out)
            return
        assert state.told is not None, "codes that remember have memory"
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
                kernels.gather_rows(movable(rows), turn.picked, movable(packed))

    def _transfer(self, turn: Turn, channel: int, buffers: MessageBuffers) -> list[Work]:
        """Start all messages of a turn."""
        works = self.transfer(
            [(_lane(buffers.incoming, lane), lane.peer) for lane in turn.incoming],
            [(_lane(buffers.outgoing, lane), lane.peer) for lane in turn.outgoing],
            self.first_tag + channel,
        )
        width = buffers.outgoing.shape[1]
        self.bytes_sent += turn.num_sent * width * buffers.outgoing.element_size()
        return works

    def deliver(self, state: Channel) -> Tensor:
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
        #    A row that has a trend moves on before: what arrives takes the place of a prediction.
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
        if not is_whole:
            state.move_on("received")
        while state.under_way and self._is_due(state.under_way[0], state.rule):
            message = state.under_way.popleft()
            with self.clock.timed("exchange_wait"):
                message.finish()
            with self.clock.timed("pack"):
                # What a warm-up leaves is as old as its last epoch.
                state.take_in(message, max(message.epoch, last_warm))
                if message.is_whole:
                    state.renew("received", self._since_whole(state))
        if not state.rule.is_cached and is_last_whole:
            with self.clock.timed("pack"):
                state.repeat(range(self.epoch + 1 - state.rule.delay, self.epoch + 1))
        for heard in state.heard.values():
            self.max_staleness = max(self.max_staleness, self.epoch - heard.epoch)
        return state.received

    def _is_due(self, message: Message, rule: Rule) -> bool:
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
                if message.masks is not None:
                    tensors[f"{number}.masks.{message.epoch}"] = message.masks
            if channel.told is not None:
                tensors[f"{number}.told"] = channel.told
            for name, rows in channel.more.items():
                tensors[f"{number}.{name}"] = rows
        for way, votes in self._votes.items():
            for name, voter in votes.voters.items():
                tensors[f"{way}.{name}"] = torch.tensor(voter.state(), dtype=torch.float64)
        return tensors

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        self.epoch, self.max_staleness = state["epoch"].tolist()
        self._channels, self._loaded = {}, {}
        for name in [name for name in state if name.endswith(".received")]:
            number = name.split(".")[0]
            heard = {
                bin_id: Heard(epoch, count)
                for bin_id, epoch, count in state[f"{number}.bin_epoch"].tolist()
            }
            under_way = [
                Message(
                    int(key.split(".")[2]),
                    rows.clone(),
                    is_coded=kind == "codes",
                    masks=state.get(f"{number}.masks.{key.split('.')[2]}"),
                )
                for kind in ("message", "codes")
                for key, rows in state.items()
                if key.startswith(f"{number}.{kind}.")
            ]
            under_way.sort(key=lambda message: message.epoch)
            told = state.get(f"{number}.told")
            more = {
                key: state[f"{number}.{key}"].clone() for key in MORE if f"{number}.{key}" in state
            }
            self._loaded[int(number)] = Loaded(
                state[name].clone(),
                heard,
                deque(under_way),
                None if told is None else told.clone(),
                more,
            )
        for way, votes in self._votes.items():
            for name, voter in votes.voters.items():
                voter.load_state(state[f"{way}.{name}"].tolist())


def _lane(buffer: Tensor, lane: PeerRows) -> Tensor:
    return buffer[lane.start : lane.stop]


def _by_peer(masks: Tensor, lanes: tuple[PeerRows, ...]) -> list[tuple[Tensor, int]]:
    """Return the part of each peer of a message of masks."""
    parts = torch.split(masks, mask_bytes(lanes))
    return [(part, lane.peer) for part, lane in zip(parts, lanes, strict=True)]


def _best_of(lanes: tuple[PeerRows, ...], best_of: int) -> tuple[PeerRows, ...]:
    """Return the lanes of a message of the best rows, whose number is known before."""
    chosen, start = [], 0
    for lane in lanes:
        count = -(-(lane.stop - lane.start) // best_of)
        chosen.append(PeerRows(lane.peer, start, start + count))
        start += count
    return tuple(chosen)


class _Delivery:
    """The rows of one delayed channel, taken in when they are needed."""

    def __init__(self, exchange: Delayed, channel: Channel) -> None:
        self._exchange = exchange
        self._channel = channel

    def wait(self) -> Tensor:
        return self._exchange.deliver(self._channel)

    def add_to(self, total: Tensor, places: Tensor) -> None:
        received = self.wait()
        with self._exchange.clock.timed("pack"):
            kernels.scatter_add_rows(received, places, total)


def _refuse_others_than_sums(rule: Rule, rows: Tensor, exact_columns: int) -> None:
    """Refuse what a rule would do to ids of winners, or to sums of a softmax.

    Settings tell of layers that are ours; what a model of a user's sends is first seen here.
    """
    is_averaged = rule.smoothing > 0 or rule.is_scaled or rule.remembers != "nothing"
    is_averaged |= rule.has_trend
    if not rows.is_floating_point() and (is_averaged or rule.spared is not None):
        raise InputError(
            "the model takes a maximum, which sends values with the ids of their winners, but "
            "--halo compares rows or adds up their values; use bins, delay or a codec, or "
            "aggregate by sum or mean"
        )
    if exact_columns and is_averaged:
        raise InputError(
            "the model attends, which sends averages with the sums of their softmax, but "
            "--halo adds up the values of a row; use bins, delay or a codec, or "
            "aggregate by sum or mean"
        )
