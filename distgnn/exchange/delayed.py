"""cd-R: rows travel a bin at a time and are used epochs later, so that nobody waits for them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from distgnn.exchange.exchange import Arrival, Exchange
from distgnn.exchange.route import binned_rows, num_rows

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.comm.group import Group, Work
    from distgnn.exchange.route import Route


@dataclass
class _Message:
    """One bin of one channel, from the epoch it was sent in until the epoch it is used in."""

    epoch: int
    incoming: Tensor
    works: list[Work] = field(default_factory=list)
    outgoing: list[Tensor] = field(default_factory=list)

    def finish(self) -> Tensor:
        for work in self.works:
            work.wait()
        self.works.clear()
        self.outgoing.clear()
        return self.incoming


@dataclass
class _Channel:
    """What one half of one aggregation remembers between epochs."""

    received: Tensor
    under_way: deque[_Message] = field(default_factory=deque)
    bin_epoch: dict[int, int] = field(default_factory=dict)


class Delayed(Exchange):
    """DistGNN's delayed remote partial aggregates, cd-R.

    In epoch e the rows of bin e mod num_bins are sent; they are used from epoch e + delay on. With
    the cache, a row between its turns keeps the value received last, so that its age is at most
    delay + num_bins - 1 epochs; a row that never arrived counts as zeros. Without it, as in the
    paper, a row contributes only in the epoch in which it arrives. Gradients travel back so too.

    Unlike DistGNN, which delays the sum of partials only and passes no gradient across the cut,
    both halves and both directions are delayed here, because the update runs at roots alone.

    Args:
        group: The ranks.
        num_bins: Parts into which the rows of each channel are divided; at least 1.
        delay: Epochs between sending and first use; at least 1.
        is_cached: Whether a row keeps its last value between its turns.
        first_tag: See `Exchange`.

    References:
        Md et al., "DistGNN: Scalable Distributed Training for Large-Scale Graph Neural Networks",
        SC 2021, section 5.3, algorithm 4.
    """

    def __init__(
        self,
        group: Group,
        *,
        num_bins: int,
        delay: int,
        is_cached: bool = True,
        first_tag: int = 0,
    ) -> None:
        super().__init__(group, first_tag=first_tag)
        assert num_bins >= 1, "a delayed exchange has at least one bin"
        assert delay >= 1, "a delay of 0 is the synchronous exchange"
        self.num_bins = num_bins
        self.delay = delay
        self.is_cached = is_cached
        self.epoch = 0
        self._channels: dict[int, _Channel] = {}

    def begin(self, route: Route, rows: Tensor, channel: int) -> Arrival:
        """Send the rows whose turn it is; see `Exchange.begin`."""
        if channel not in self._channels:
            received = torch.zeros((route.num_in, rows.shape[1]), dtype=rows.dtype)
            self._channels[channel] = _Channel(received)
        state = self._channels[channel]
        state.under_way.append(self._send_bin(route, rows, self.first_tag + channel))
        return _Delivery(self, state, route)

    def end_epoch(self) -> None:
        """Rotate the bins."""
        super().end_epoch()
        self.epoch += 1

    def _send_bin(self, route: Route, rows: Tensor, tag: int) -> _Message:
        bin_id = self.epoch % self.num_bins
        arriving = binned_rows(route.incoming, bin_id, self.num_bins)
        counts = [num_rows(picked) for _, picked in arriving]
        message = _Message(self.epoch, torch.empty((sum(counts), rows.shape[1]), dtype=rows.dtype))
        for (peer, _), buffer in zip(arriving, torch.split(message.incoming, counts), strict=True):
            message.works.append(self.group.irecv(buffer, peer, tag))
        with self.clock.timed("pack"):
            for peer, picked in binned_rows(route.outgoing, bin_id, self.num_bins):
                # A copy: the caller's buffer is reused long before this message is delivered.
                outgoing = rows[picked].clone(memory_format=torch.contiguous_format)
                message.outgoing.append(outgoing)
                message.works.append(self.group.isend(outgoing, peer, tag))
                self.bytes_sent += outgoing.numel() * outgoing.element_size()
        return message

    def deliver(self, channel: _Channel, route: Route) -> Tensor:
        """Take in the message whose delay is over and return the rows that this epoch uses."""
        if not self.is_cached:
            channel.received.zero_()
            channel.bin_epoch.clear()
        if channel.under_way and channel.under_way[0].epoch == self.epoch - self.delay:
            message = channel.under_way.popleft()
            with self.clock.timed("exchange_wait"):
                incoming = message.finish()
            with self.clock.timed("pack"):
                bin_id = message.epoch % self.num_bins
                start = 0
                for _, picked in binned_rows(route.incoming, bin_id, self.num_bins):
                    stop = start + num_rows(picked)
                    channel.received[picked] = incoming[start:stop]
                    start = stop
                if len(incoming):
                    channel.bin_epoch[bin_id] = message.epoch
        for sent in channel.bin_epoch.values():
            self.max_staleness = max(self.max_staleness, self.epoch - sent)
        return channel.received

    def state(self) -> dict[str, Tensor]:
        """Return received rows and messages under way; waits until all of them arrived."""
        tensors = {"epoch": torch.tensor([self.epoch, self.max_staleness])}
        for number, channel in self._channels.items():
            tensors[f"{number}.received"] = channel.received
            bins = sorted(channel.bin_epoch.items())
            tensors[f"{number}.bin_epoch"] = torch.tensor(bins, dtype=torch.int64).reshape(-1, 2)
            for message in channel.under_way:
                tensors[f"{number}.message.{message.epoch}"] = message.finish()
        return tensors

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        self.epoch, self.max_staleness = state["epoch"].tolist()
        self._channels = {}
        for name in [name for name in state if name.endswith(".received")]:
            number = name.split(".")[0]
            channel = _Channel(state[name].clone())
            channel.bin_epoch = dict(state[f"{number}.bin_epoch"].tolist())
            prefix = f"{number}.message."
            epochs = sorted(int(key[len(prefix) :]) for key in state if key.startswith(prefix))
            for epoch in epochs:
                channel.under_way.append(_Message(epoch, state[f"{prefix}{epoch}"].clone()))
            self._channels[int(number)] = channel


class _Delivery:
    """The rows of one delayed channel, taken in when they are needed."""

    def __init__(self, exchange: Delayed, channel: _Channel, route: Route) -> None:
        self._exchange = exchange
        self._channel = channel
        self._route = route

    def wait(self) -> Tensor:
        return self._exchange.deliver(self._channel, self._route)
