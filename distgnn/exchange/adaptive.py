"""Bits that follow the rows: measured ranges decide how many bits each group of rows gets.

    epoch m:    every message notes the ranges of its rows
    its end:    sums over ranks -> allocation -> each sender tells the bits of its rows
    epoch m+1:  rows travel with these bits, until the next measurement

The squared error of a value with b bits is unit^2 / 6 on average, where unit is range / (2^b - 1).
Rounded to the nearest, it is half of that. Errors of a message are divided by
the squares of all its rows, so that messages of large and small values count alike.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch

from distgnn.exchange.base import Synchronous
from distgnn.exchange.bits import allocate
from distgnn.exchange.coder import Coder, SquaredError, coder_of
from distgnn.exchange.tags import MAX_CHANNELS
from distgnn.kernels.codec import decode_rows, encode_rows, row_offsets
from distgnn.kernels.devices import PROCESSOR

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from distgnn.comm.group import Group
    from distgnn.exchange.codec import Adaptation, Bits, CodecSpec, HaloCodecs
    from distgnn.exchange.route import Route
    from distgnn.ops.buffers import Buffers

# Rows to a peer are cut into so many groups of equal size, by range.
_NUM_GROUPS = 16


class _RowBits(NamedTuple):
    """Bits of the rows of a message.

    Attributes:
        sent: (num_out,) uint8, of the rows that leave.
        received: (num_in,) uint8, of the rows that arrive.
    """

    sent: Tensor
    received: Tensor


class _Measured(NamedTuple):
    """Rows of a message, as they were measured.

    Attributes:
        route: Who gets how many rows.
        spread: (num_out,) float64. Squared range of each row, times its coded columns.
        power: (num_out,) float64. Squared values of each row, added up.
        row_bytes: Bytes of a row for each choice of bits.
        spec: Code of the message.
        is_backward: Whether it carries gradients.
    """

    route: Route
    spread: NDArray[np.float64]
    power: NDArray[np.float64]
    row_bytes: NDArray[np.float64]
    spec: CodecSpec
    is_backward: bool

    @property
    def how(self) -> Adaptation:
        """How its bits adapt."""
        assert self.spec.adaptation is not None, "only such messages are measured"
        return self.spec.adaptation

    def budget_bytes(self, count: float) -> float:
        """Return the bytes that some rows take with the bits of the code."""
        return count * float(self.row_bytes[self.how.choices.index(self.spec.bits)])


class RowCoder(Coder):
    """Packs rows that have bits of their own.

    Args:
        spec: The code.
        like: See `Coder`.
        exact_columns: See `Coder`.
        buffers: See `Coder`.
        bits: Bits of the rows that leave and of those that arrive.
    """

    def __init__(
        self, spec: CodecSpec, like: Tensor, exact_columns: int, buffers: Buffers, bits: _RowBits
    ) -> None:
        super().__init__(spec.plain, like, exact_columns, buffers)
        self._sent, self._received = bits
        self._sent_at, self._received_at = (
            row_offsets(one, self._width, exact_columns) for one in bits
        )

    def pack(
        self,
        rows: Tensor,
        picked: Tensor | None,
        count: int,
        seed: int,
        *,
        out: Tensor | None = None,
    ) -> Tensor:
        """Write rows in the code; see `Coder.pack`.

        Returns:
            (num_bytes,) uint8.
        """
        assert out is None, "memory is of the exchange"
        packed = self._bytes(self._sent_at)
        return self._write(rows, picked, count, seed, packed)

    def _encode(
        self, rows: Tensor, picked: Tensor | None, count: int, seed: int | None, out: Tensor
    ) -> None:
        encode_rows(
            rows,
            picked,
            count,
            bits=self._sent,
            exact_columns=self._exact_columns,
            seed=seed,
            out=out,
            offsets=self._sent_at,
        )

    def _bytes(self, offsets: Tensor) -> Tensor:
        return self._buffers.empty(int(offsets[-1]), 1, torch.uint8).view(-1)

    def leaving(self, packed: Tensor, start: int, stop: int) -> Tensor:
        """Return the bytes of some rows of a message that leaves."""
        return packed[int(self._sent_at[start]) : int(self._sent_at[stop])]

    def arriving(self, packed: Tensor, start: int, stop: int) -> Tensor:
        """Return the bytes of some rows of a message that arrives."""
        return packed[int(self._received_at[start]) : int(self._received_at[stop])]

    def num_bits(self, count: int) -> tuple[int, int]:
        """Return the bits of all codes of a message that leaves, and the number of its values."""
        columns = self._width - self._exact_columns
        return columns * int(self._sent.sum()), columns * count

    def landing(self, count: int) -> Tensor:
        """Return memory for the codes that arrive: (num_bytes,) uint8."""
        del count
        return self._bytes(self._received_at)

    def unpack(self, packed: Tensor) -> Tensor:
        """Read the rows that arrived; see `Coder.unpack`."""
        count = len(self._received)
        rows = self._buffers.empty(count, self._width, self._dtype)
        if count:
            self._decode(packed, rows, None, is_added=False)
        return rows

    def add_to(self, total: Tensor, packed: Tensor, places: Tensor) -> None:
        """Read rows, and add them where they belong; see `Coder.add_to`."""
        if len(places):
            self._decode(packed, total, places, is_added=True)

    def _decode(
        self, packed: Tensor, out: Tensor, places: Tensor | None, *, is_added: bool
    ) -> None:
        decode_rows(
            packed,
            self._width,
            bits=self._received,
            exact_columns=self._exact_columns,
            out=out,
            places=places,
            add=is_added,
            offsets=self._received_at,
        )

    def error(self, rows: Tensor, picked: Tensor | None, packed: Tensor) -> SquaredError:
        """Compare a sample of the rows of a message with what the others read; see `Coder`."""
        places = self._sampled(len(self._sent))
        starts, own = self._sent_at[:-1][places], self._sent[places]
        offsets = row_offsets(own, self._width, self._exact_columns)
        copied = torch.arange(int(offsets[-1]), device=packed.device)
        lengths = offsets.diff()
        copied += (starts - offsets[:-1]).repeat_interleave(lengths)
        read = self._buffers.empty(len(own), self._width, self._dtype)
        decode_rows(
            packed[copied],
            self._width,
            bits=own.contiguous(),
            exact_columns=self._exact_columns,
            out=read,
            offsets=offsets,
        )
        return self._compare(rows, picked, places, read)


class Adaptive(Synchronous):
    """cd-0 whose codes have bits that follow the rows; see `Adaptation`.

    Ranks measure in the same epochs and exchange what they found when the epoch ends, so that both
    ends of a message know its bits. Before the first measurement all rows have the bits of the
    code. The bits are state: a run that is resumed goes on with those of its checkpoint.
    """

    def __init__(
        self,
        group: Group,
        codecs: HaloCodecs,
        *,
        first_tag: int = 0,
        device: torch.device = PROCESSOR,
    ) -> None:
        super().__init__(group, codecs, first_tag=first_tag, device=device)
        self._bits: dict[int, Bits] = {}
        self._row_bits: dict[int, _RowBits] = {}
        # Where each row of a message begins follows from the bits, which stay for many epochs.
        self._row_coders: dict[int, RowCoder] = {}
        self._measured: dict[int, _Measured] = {}

    def _coder(
        self,
        spec: CodecSpec,
        route: Route,
        rows: Tensor,
        channel: int,
        picked: Tensor | None,
        exact_columns: int,
    ) -> Coder | None:
        plain = coder_of(spec.plain, rows, exact_columns, self.buffers)
        how = spec.adaptation
        if plain is None or how is None:
            return plain
        is_new = channel not in self._bits and channel not in self._row_bits
        if is_new or self.seeds.epoch % how.every == 0:
            with self.clock.timed("pack"):
                self._measure(spec, route, rows, channel, picked, exact_columns)
        if channel in self._row_bits:
            if channel not in self._row_coders:
                bits = _RowBits(*(one.to(rows.device) for one in self._row_bits[channel]))
                made = RowCoder(spec, rows, exact_columns, self.buffers, bits)
                self._row_coders[channel] = made
            return self._row_coders[channel]
        bits_of_all = self._bits.get(channel, spec.bits)
        given = replace(spec.plain, bits=bits_of_all)
        return coder_of(given, rows, exact_columns, self.buffers)

    def _measure(
        self,
        spec: CodecSpec,
        route: Route,
        rows: Tensor,
        channel: int,
        picked: Tensor | None,
        exact_columns: int,
    ) -> None:
        assert spec.adaptation is not None, "bits adapt"
        columns = rows.shape[1] - exact_columns
        sent = rows[: route.num_out] if picked is None else rows[picked.long()]
        sent = sent[:, :columns].detach().float()
        spread = columns * (sent.amax(1) - sent.amin(1)).double().square()
        power = sent.double().square().sum(1)
        # Rows without codes end the run soon; until then they shall not spoil those of others.
        spreads, powers = (one.nan_to_num(0, 0, 0).cpu().numpy() for one in (spread, power))
        item_bytes = rows.element_size()
        row_bytes = np.array(
            [
                replace(spec.plain, bits=bits).row_bytes(rows.shape[1], item_bytes, exact_columns)
                for bits in spec.adaptation.choices
            ],
            dtype=np.float64,
        )
        found = _Measured(route, spreads, powers, row_bytes, spec, self.is_backward)
        self._measured[channel] = found

    def end_epoch(self) -> None:
        """Share what was measured, and give bits to rows; collective where something was."""
        super().end_epoch()
        if not self._measured:
            return
        measured, self._measured = dict(sorted(self._measured.items())), {}
        own = torch.tensor(
            [(one.spread.sum(), one.power.sum(), one.route.num_out) for one in measured.values()],
            dtype=torch.float64,
        )
        sums = torch.stack(self.group.all_gather(own)).sum(0).numpy()
        totals = dict(zip(measured, sums, strict=True))
        for is_backward in (False, True):
            ways = {n: one for n, one in measured.items() if one.is_backward == is_backward}
            if not ways:
                continue
            if next(iter(ways.values())).how.by == "layer":
                self._bits |= _by_layer(ways, totals)
            else:
                self._tell(_by_row(ways, totals), ways)

    def _tell(self, sent: dict[int, NDArray[np.uint8]], ways: dict[int, _Measured]) -> None:
        """Exchange the bits of rows."""
        for channel, bits in sent.items():
            route, device = ways[channel].route, self.device
            leaving = torch.from_numpy(bits).to(device)
            arriving = torch.full((route.num_in,), ways[channel].spec.bits, dtype=torch.uint8)
            arriving = arriving.to(device)
            works = self.transfer(
                [(arriving[part.start : part.stop], part.peer) for part in route.incoming],
                [(leaving[part.start : part.stop], part.peer) for part in route.outgoing],
                self.first_tag + channel % MAX_CHANNELS,
            )
            for work in works:
                work.wait()
            self.bytes_sent += leaving.numel()
            self._row_bits[channel] = _RowBits(leaving, arriving)
            self._row_coders.pop(channel, None)

    def state(self) -> dict[str, Tensor]:
        """Return the bits of all messages; see `Exchange.state`."""
        found = {
            f"{channel}.bits": torch.tensor([bits], dtype=torch.uint8)
            for channel, bits in self._bits.items()
        }
        for channel, rows in self._row_bits.items():
            found |= {f"{channel}.sent": rows.sent, f"{channel}.received": rows.received}
        return found

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        self._row_coders.clear()
        for name, bits in state.items():
            channel, what = name.split(".")
            if what == "bits":
                self._bits[int(channel)] = cast("Bits", int(bits))
            elif what == "sent":
                received = state[f"{channel}.received"]
                self._row_bits[int(channel)] = _RowBits(bits.clone(), received.clone())


def _share(spread: NDArray[np.float64], power: float, spec: CodecSpec) -> NDArray[np.float64]:
    """Return the relative squared errors of groups, for each choice of bits."""
    assert spec.adaptation is not None, "bits adapt"
    steps = 2.0 ** np.array(spec.adaptation.choices) - 1
    rounded = 6 if spec.is_random else 12
    return spread[:, None] / (rounded * max(power, 1e-300) * steps**2)


def _solve(
    errors: NDArray[np.float64],
    num_bytes: NDArray[np.float64],
    *,
    most_error: float | None,
    most_bytes: float,
) -> NDArray[np.int64]:
    """Return the choice of each group; the most bits where no choice keeps to the error."""
    if most_error is None:
        chosen = allocate(errors, num_bytes, most_bytes)
        assert chosen is not None, "bits of the code are among the choices"
        return chosen
    chosen = allocate(num_bytes, errors, most_error)
    return np.full(len(errors), errors.shape[1] - 1) if chosen is None else chosen


def _by_layer(
    ways: dict[int, _Measured], totals: dict[int, NDArray[np.float64]]
) -> dict[int, Bits]:
    """Return the bits of each message; the same on every rank."""
    errors, num_bytes = [], []
    for channel, one in ways.items():
        spread, power, count = totals[channel]
        errors.append(_share(np.array([spread]), power, one.spec)[0])
        num_bytes.append(count * one.row_bytes)
    how = next(iter(ways.values())).how
    num_coded = sum(totals[channel][1] > 0 for channel in ways)
    chosen = _solve(
        np.array(errors),
        np.array(num_bytes),
        most_error=None if how.error is None else how.error**2 * num_coded,
        most_bytes=sum(one.budget_bytes(totals[channel][2]) for channel, one in ways.items()),
    )
    return {channel: how.choices[choice] for channel, choice in zip(ways, chosen, strict=True)}


def _by_row(
    ways: dict[int, _Measured], totals: dict[int, NDArray[np.float64]]
) -> dict[int, NDArray[np.uint8]]:
    """Return the bits of each row that this rank sends, peer by peer."""
    found = {
        channel: np.full(one.route.num_out, one.spec.bits, dtype=np.uint8)
        for channel, one in ways.items()
    }
    peers = sorted({part.peer for one in ways.values() for part in one.route.outgoing})
    for peer in peers:
        errors, num_bytes, groups = [], [], []
        most_error = most_bytes = 0.0
        for channel, one in ways.items():
            power = totals[channel][1]
            for part in one.route.outgoing:
                if part.peer != peer:
                    continue
                rows = part.start + np.argsort(one.spread[part.start : part.stop], kind="stable")
                cuts = [cut for cut in np.array_split(rows, _NUM_GROUPS) if len(cut)]
                spread = np.array([one.spread[cut].sum() for cut in cuts])
                errors.append(_share(spread, power, one.spec))
                num_bytes.append(np.array([len(cut) * one.row_bytes for cut in cuts]))
                groups += [(channel, cut) for cut in cuts]
                most_bytes += one.budget_bytes(len(rows))
                if one.how.error is not None:
                    share = one.power[part.start : part.stop].sum() / max(power, 1e-300)
                    most_error += one.how.error**2 * float(share)
        how = next(iter(ways.values())).how
        chosen = _solve(
            np.concatenate(errors),
            np.concatenate(num_bytes),
            most_error=None if how.error is None else most_error,
            most_bytes=most_bytes,
        )
        for (channel, cut), choice in zip(groups, chosen, strict=True):
            found[channel][cut] = how.choices[choice]
    return found
