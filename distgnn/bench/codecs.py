"""Time the coding of rows beside a copy, a gather and checksums of them, and plain torch."""

from __future__ import annotations

import statistics
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from distgnn import kernels
from distgnn.bench.measure import CLOCKS, OURS
from distgnn.datasets import InputError
from distgnn.exchange.checks import checksum
from distgnn.kernels import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from distgnn.bench.measure import ClockName

MEMCPY, GATHER, TORCH, CHECKSUM, ZLIB = "memcpy", "gather", "torch", "crc32c", "zlib"
HEADER = (
    *("direction", "width", "bits", "rounding", "threads", "ms", "GB/s"),
    *(MEMCPY, GATHER, TORCH, CHECKSUM, ZLIB),
)
_SEED = 1


@dataclass(frozen=True, kw_only=True)
class CodecRace:
    """A comparison of codecs.

    Attributes:
        widths: Columns of the rows.
        bits: Bits of a value, each one of `codec.BITS`.
        threads: Numbers of threads.
        rounds: Times that each contestant runs in a case.
        table_bytes: Bytes of the float32 rows, of which half are picked.
        seed: Seed of the values.
        clock: Clock that is read before and after a run.
    """

    widths: Sequence[int]
    bits: Sequence[int]
    threads: Sequence[int]
    rounds: int
    table_bytes: int = 64 * 2**20
    seed: int = 0
    clock: ClockName = "wall"

    def __post_init__(self) -> None:
        """Check the bits."""
        for bits in self.bits:
            if bits not in codec.BITS:
                allowed = ", ".join(map(str, codec.BITS))
                raise InputError(f"--bits must be among {allowed}, got {bits}")


def measure(race: CodecRace, *, progress: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Run all cases.

    Args:
        race: Cases to measure.
        progress: Function that receives notes about the work under way.

    Yields:
        Results by name, one per direction, width, bits, rounding and number of threads. `ms` has
        the median time of each contestant, `ratio` each one's time over ours.
    """
    threads_before = torch.get_num_threads()
    try:
        for width in race.widths:
            generator = torch.Generator().manual_seed(race.seed)
            num_rows = max(2, race.table_bytes // (4 * width))
            x = torch.randn(num_rows, width, generator=generator)
            chosen = torch.randperm(num_rows, generator=generator)[: num_rows // 2]
            picked = chosen.sort().values.int()
            progress(f"{len(picked)} of {num_rows} rows of {width} columns")
            for threads in race.threads:
                torch.set_num_threads(threads)
                for bits in race.bits:
                    for rounding in ("random", "nearest") if 1 < bits < 16 else ("nearest",):
                        case = CodecCase(x, picked, bits, _SEED if rounding == "random" else None)
                        yield from _measure_case(race, case, rounding, threads)
    finally:
        torch.set_num_threads(threads_before)


def _measure_case(
    race: CodecRace, case: CodecCase, rounding: str, threads: int
) -> Iterator[dict[str, Any]]:
    for direction, jobs in (("encode", case.encoders()), ("decode", case.decoders())):
        times = _times(jobs, race)
        ms = {name: 1e3 * statistics.median(values) for name, values in times.items()}
        yield {
            "direction": direction,
            "width": case.x.shape[1],
            "bits": case.bits,
            "rounding": rounding,
            "threads": threads,
            "num_rows": len(case.picked),
            "ms": ms,
            "gigabytes_per_s": 4 * case.rows.numel() / ms[OURS] / 1e6,
            "ratio": {name: value / ms[OURS] for name, value in ms.items() if name != OURS},
        }


def _times(jobs: dict[str, Callable[[], object]], race: CodecRace) -> dict[str, list[float]]:
    """Run every job once untimed, then all of them in turns."""
    now = CLOCKS[race.clock]
    for job in jobs.values():
        job()
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(race.rounds):
        for name, job in jobs.items():
            start = now()
            job()
            times[name].append(now() - start)
    return times


class CodecCase:
    """Rows and a way to code them.

    Args:
        x: (num_rows, width) float32.
        picked: (count,) int32. Rows that are coded.
        bits: Bits of a value.
        seed: Seed of random rounding; None rounds to the nearest.
    """

    def __init__(self, x: Tensor, picked: Tensor, bits: int, seed: int | None) -> None:
        self.x, self.picked, self.bits, self.seed = x, picked, bits, seed
        count, width = len(picked), x.shape[1]
        self.codes = torch.empty(count, codec.row_bytes(width, bits), dtype=torch.uint8)
        self.rows = x[picked.long()]
        self.out = torch.empty_like(self.rows)
        self._coded = plain_encode(x, picked, bits, is_random=seed is not None)

    def encoders(self) -> dict[str, Callable[[], object]]:
        """Return the contestants in coding: all but a copy gather the rows themselves."""
        return {
            OURS: self._encode,
            MEMCPY: lambda: self.out.copy_(self.rows),
            CHECKSUM: lambda: checksum(self.rows),
            ZLIB: lambda: zlib.crc32(self.rows.numpy().data),
            GATHER: lambda: kernels.gather_rows(self.x, self.picked, self.out),
            TORCH: lambda: plain_encode(
                self.x, self.picked, self.bits, is_random=self.seed is not None
            ),
        }

    def decoders(self) -> dict[str, Callable[[], object]]:
        """Return the contestants in decoding."""
        return {
            OURS: self._decode,
            MEMCPY: lambda: self.out.copy_(self.rows),
            CHECKSUM: lambda: checksum(self.rows),
            ZLIB: lambda: zlib.crc32(self.rows.numpy().data),
            TORCH: lambda: plain_decode(self._coded, self.x.shape[1], self.bits),
        }

    def _encode(self) -> None:
        count = len(self.picked)
        codec.encode_rows(
            self.x, self.picked, count, bits=self.bits, seed=self.seed, out=self.codes
        )

    def _decode(self) -> None:
        codec.decode_rows(self.codes, self.x.shape[1], bits=self.bits, out=self.out)


def plain_encode(
    x: Tensor, picked: Tensor, bits: int, *, is_random: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Code rows by operations of torch.

    Args:
        x: (num_rows, width) float32.
        picked: (count,) int32. Rows that are coded.
        bits: Bits of a value.
        is_random: Whether codes are rounded at random.

    Returns:
        first: (count, 1) float32. Minima, or lower centroids.
        second: (count, 1) float32. Units, or upper centroids.
        packed: (count, bytes) uint8, or (count, width) bfloat16 for 16 bits.
    """
    rows = x.index_select(0, picked)
    if bits == codec.BITS[0]:
        return rows, rows, rows.bfloat16()
    if bits == 1:
        is_above = rows > rows.mean(1, keepdim=True)
        num_above = is_above.sum(1, keepdim=True)
        first = rows.where(~is_above, 0).sum(1, keepdim=True) / (rows.shape[1] - num_above)
        second = rows.where(is_above, 0).sum(1, keepdim=True) / num_above
        return first, second, _packed(is_above.to(torch.uint8), bits)
    first, highest = rows.aminmax(dim=1, keepdim=True)
    second = (highest - first) / (2**bits - 1)
    place = rows.sub_(first).div_(second)
    place = place.add_(torch.rand_like(place) if is_random else 0.5)
    codes = place.clamp_(0, 2**bits - 1).to(torch.uint8)
    return first, second, _packed(codes, bits)


def plain_decode(coded: tuple[Tensor, Tensor, Tensor], width: int, bits: int) -> Tensor:
    """Decode rows by operations of torch.

    Args:
        coded: Result of `plain_encode`.
        width: Number of columns.
        bits: Bits of a value.

    Returns:
        (count, width) float32.
    """
    first, second, packed = coded
    if bits == codec.BITS[0]:
        return packed.float()
    planes = [(packed >> shift) & (2**bits - 1) for shift in range(0, 8, bits)]
    codes = torch.cat(planes, 1)[:, :width]
    if bits == 1:
        return torch.where(codes.bool(), second, first)
    return torch.addcmul(first, codes.float(), second)


def _packed(codes: Tensor, bits: int) -> Tensor:
    if bits == 8:
        return codes
    count = 8 // bits
    codes = torch.nn.functional.pad(codes, (0, -codes.shape[1] % count))
    planes = codes.chunk(count, 1)
    packed = planes[0].clone()
    for number, plane in enumerate(planes[1:], 1):
        packed |= plane << (bits * number)
    return packed


def row(result: dict[str, Any]) -> tuple[str, ...]:
    """Return one result as text: our time and rate, then each contestant's time over ours."""
    ratio = result["ratio"]
    return (
        result["direction"],
        *(str(result[name]) for name in ("width", "bits", "rounding", "threads")),
        f"{result['ms'][OURS]:.2f}",
        f"{result['gigabytes_per_s']:.1f}",
        *(
            f"{ratio[name]:.2f}" if name in ratio else "-"
            for name in (MEMCPY, GATHER, TORCH, CHECKSUM, ZLIB)
        ),
    )
