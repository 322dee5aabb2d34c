"""Rows of one channel between epochs: those that arrived, are under way, or were told."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from distgnn import kernels
from distgnn.datasets.errors import InputError
from distgnn.exchange.masks import arriving, read_masks

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.comm.group import Work
    from distgnn.exchange.coder import Coder
    from distgnn.exchange.rule import Rule
    from distgnn.exchange.turns import Turn, Turns

# Of so many rows one is measured for a vote.
_SAMPLED = 16
# Tensors of a channel that only some rules keep.
MORE = ("sample", "received_base", "received_rate", "told_base", "told_rate")


class MessageBuffers(NamedTuple):
    """Memory of one message, long enough for every turn."""

    outgoing: Tensor
    incoming: Tensor


@dataclass
class Message:
    """Rows of one channel, from the epoch they were sent in until the epoch they are used in.

    Attributes:
        turn: Rows that have their turn; found from the epoch where it is None.
        masks: Bits of the rows that arrive, of those that have their turn; None if all of them do.
        leaving_masks: Bits of the rows that leave, which live until they have left.
        ask: Posts the receives of rows whose number the masks tell.
    """

    epoch: int
    incoming: Tensor
    is_whole: bool = False
    is_coded: bool = False
    turn: Turn | None = None
    works: list[Work] = field(default_factory=list)
    buffers: MessageBuffers | None = None
    masks: Tensor | None = None
    leaving_masks: Tensor | None = None
    ask: Callable[[], None] | None = None

    def finish(self) -> Tensor:
        """Wait for the rows that arrive, and until those that leave have left."""
        if self.ask is not None:
            ask, self.ask = self.ask, None
            ask()
        for work in self.works:
            work.wait()
        self.works.clear()
        return self.incoming


class Heard(NamedTuple):
    """The newest rows of a bin: when they were sent, and how many values went into them."""

    epoch: int
    num_values: int


@dataclass
class Loaded:
    """A channel as a checkpoint has it, until the first rows show its route."""

    received: Tensor
    heard: dict[int, Heard]
    under_way: deque[Message]
    told: Tensor | None = None
    more: dict[str, Tensor] = field(default_factory=dict)

    def to(self, device: torch.device) -> Loaded:
        """Return the same channel on a device."""
        messages = (
            replace(message, incoming=message.incoming.to(device)) for message in self.under_way
        )
        told = None if self.told is None else self.told.to(device)
        more = {name: rows.to(device) for name, rows in self.more.items()}
        return Loaded(self.received.to(device), self.heard, deque(messages), told, more)


class _Trend:
    """Line through rows in the last two epochs in which all of them travelled as they are.

    Args:
        like: Rows of the same shape and type.

    Attributes:
        base: Rows of the last of these epochs.
        rate: Change of rows in an epoch between the two; zeros before there are two.
    """

    def __init__(self, like: Tensor) -> None:
        self.base = torch.zeros_like(like)
        self.rate = torch.zeros_like(like)

    def renew(self, rows: Tensor, num_epochs: int) -> None:
        """Take the rows of such an epoch.

        Args:
            rows: The rows.
            num_epochs: Epochs since the last one; 0 if this is the first.
        """
        if num_epochs:
            torch.sub(rows, self.base, out=self.rate).div_(num_epochs)
        self.base.copy_(rows)


class Channel:
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
        exact_columns: Trailing columns of another kind, such as sums of a softmax.
    """

    def __init__(
        self, turns: Turns, rule: Rule, like: Tensor, coder: Coder | None, loaded: Loaded | None
    ) -> None:
        self.turns = turns
        self.rule = rule
        self.coder = coder
        self.is_backward = False
        self.exact_columns = 0
        self._spare: list[MessageBuffers] = []
        shape = (turns.whole.num_received, like.shape[1])
        if loaded is None:
            loaded = Loaded(like.new_zeros(shape), {}, deque())
        elif loaded.received.shape != shape:
            raise InputError(
                f"the checkpoint keeps rows of another layer, {tuple(loaded.received.shape)} where "
                f"{shape} are received: with --input-dropout 0 the first layer receives no rows in "
                "training, and else it does; keep that as it was, or use another --run"
            )
        self.received = loaded.received
        self.heard = loaded.heard
        self.under_way = loaded.under_way
        self.told: Tensor | None = loaded.told
        is_coded = coder is not None and rule.remembers != "nothing"
        if self.told is None and (is_coded or rule.spared is not None):
            self.told = like.new_zeros((turns.whole.num_sent, like.shape[1]))
        self.sample = loaded.more.get("sample")
        self.trends: dict[str, _Trend] = {}
        if rule.has_trend:
            self.trends["received"] = _Trend(self.received)
            if self.told is not None and rule.tells_values:
                self.trends["told"] = _Trend(self.told)
        for name, trend in self.trends.items():
            if f"{name}_base" in loaded.more:
                trend.base.copy_(loaded.more[f"{name}_base"])
                trend.rate.copy_(loaded.more[f"{name}_rate"])

    @property
    def more(self) -> dict[str, Tensor]:
        """Other tensors that a checkpoint keeps, by name."""
        found = {} if self.sample is None else {"sample": self.sample}
        for name, trend in self.trends.items():
            found |= {f"{name}_base": trend.base, f"{name}_rate": trend.rate}
        return found

    def move_on(self, name: Literal["received", "told"]) -> None:
        """Let rows move on by an epoch, if they have a trend."""
        if name in self.trends:
            rows = self.received if name == "received" else self.told
            assert rows is not None, "a trend is one of rows"
            rows.add_(self.trends[name].rate)

    def renew(self, name: Literal["received", "told"], num_epochs: int) -> None:
        """Draw the line of a trend through rows that travelled as they are.

        Args:
            name: Which rows.
            num_epochs: Epochs since the last such one; 0 if this is the first.
        """
        if name in self.trends:
            rows = self.received if name == "received" else self.told
            assert rows is not None, "a trend is one of rows"
            self.trends[name].renew(rows, num_epochs)

    def measure(self, rows: Tensor) -> tuple[float, float]:
        """Compare some rows with those that were sent last.

        Args:
            rows: Table of the rows of this epoch.

        Returns:
            Squared change and squared rows that were sent, summed over a sixteenth of the rows.
        """
        # Ids, as of the winners of a maximum, are no values: their squares would outweigh all.
        if self.sample is None or not rows.is_floating_point():
            return 0.0, 0.0
        # Columns of another kind, such as logarithms beside gradients, would outweigh these, too.
        columns = slice(rows.shape[1] - self.exact_columns)
        before = self.sample[:, columns].double()
        change = self._sampled(rows)[:, columns].double() - before
        return float(change.square().sum()), float(before.square().sum())

    def note(self, rows: Tensor) -> None:
        """Keep some of the rows that are sent in this epoch, to measure the next."""
        self.sample = self._sampled(rows).clone()

    def _sampled(self, rows: Tensor) -> Tensor:
        turn = self.turns.whole
        if turn.picked is None:
            return rows[: turn.num_sent : _SAMPLED]
        return rows[turn.picked[::_SAMPLED].long()]

    def spare(self) -> MessageBuffers:
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
        return MessageBuffers(outgoing, incoming)

    def take_in(self, message: Message, sent_at: int) -> None:
        """Put what arrived where it belongs."""
        if message.is_whole:
            for bin_id in self.turns.groups:
                self.heard[bin_id] = Heard(sent_at, 1)
            return
        turn = self._turn_of(message)
        if turn.num_received:
            group = self.turns.group_of(message.epoch)
            count = self.heard[group].num_values + 1 if group in self.heard else 1
            self.heard[group] = Heard(sent_at, count)
            assert turn.places is not None, "the rows of a turn have places"
            smoothing = self.rule.smoothing
            # The average, divided by the sum of its weights, moves by this share. Rows without a
            # cache are blended into zeros, so that a weight above 1 scales them.
            scale = self.rule.deal.period if self.rule.is_scaled else 1
            weight = scale * (1 - smoothing) / (1 - smoothing**count)
            if message.masks is not None:
                turn = arriving(turn, read_masks(message.masks, turn.incoming))
            if turn.num_received and turn.places is not None:
                self._blend(message, turn.places, weight)
        self.release(message)

    def _turn_of(self, message: Message) -> Turn:
        return self.turns.at(message.epoch) if message.turn is None else message.turn

    def _blend(self, message: Message, places: Tensor, weight: float) -> None:
        incoming = message.incoming
        if self.coder is None or not message.is_coded:
            kernels.blend_rows(movable(incoming), places, movable(self.received), weight=weight)
        elif self.rule.remembers == "value":
            # The change against what was told before; the sender adds the same to what it told.
            changed = self.coder.unpack(incoming)
            known = torch.empty_like(changed)
            kernels.gather_rows(self.received, places, known)
            kernels.blend_rows(known.add_(changed), places, self.received, weight=1)
        else:
            self.coder.blend(incoming, self.received, places, weight)

    def release(self, message: Message) -> None:
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
            kernels.gather_rows(movable(self.received), turn.places, movable(incoming))
            self.under_way.append(Message(epoch, incoming, turn=turn))


def movable(rows: Tensor) -> Tensor:
    """Let kernels for floats move whole numbers of 64 bits, which they copy bit by bit."""
    return rows if rows.is_floating_point() else rows.view(torch.float64)
