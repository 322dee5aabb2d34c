"""Time contestants side by side: interleaved, so that a slow minute of the machine hits all."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch

from distgnn.bench import peers, shapes
from distgnn.bench.cases import OPERATIONS, PAIRS, Case, CaseInputs
from distgnn.bench.ours import Ours

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from distgnn.bench.cases import Runner

ClockName = Literal["wall", "cpu"]
CLOCKS: dict[ClockName, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
OURS = "distgnn"
ROOF = "roof"
HALF = "distgnn-bf16"
_MIN_ROUNDS = 2
_RELATIVE_TOLERANCE = 1e-3
_MIN_ROOF_WIDTH = 16
_TIE_FRACTION = 1e-4


_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4


def keep_freed_memory() -> None:
    """Spare the peers the page faults of a new result in every call; ours is made once."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


@dataclass(frozen=True, kw_only=True)
class KernelRace:
    """Settings of a race.

    Attributes:
        shapes: Names of twins.
        orders: Orders of their vertices.
        scale: Scale of the twins.
        operations: Operations to compare.
        directions: Directions to compare.
        widths: To compare.
        threads: To compare.
        peers: Names of contestants beside ours.
        rounds: Times that each contestant runs in a case.
        slow_s: A contestant that takes longer runs only twice.
        seed: Seed of graphs and values.
        clock: Clock of a run: "wall", or "cpu", the time that all threads of this process ran.
            Programs that share the machine hardly disturb the latter.
    """

    shapes: Sequence[str]
    orders: Sequence[str]
    scale: float
    operations: Sequence[str]
    directions: Sequence[str]
    widths: Sequence[int]
    threads: Sequence[int]
    peers: Sequence[str]
    rounds: int
    slow_s: float
    seed: int = 0
    clock: ClockName = "wall"

    def cases(self) -> list[Case]:
        """List the cases of one shape."""
        return [
            Case(operation, direction, width, threads)
            for width in self.widths
            for operation in self.operations
            for direction in self.directions
            for threads in self.threads
            if operation not in OPERATIONS or (operation, direction) in PAIRS
        ]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The times of one case on one shape.

    Attributes:
        shape: Name and order.
        operation: Operation of the case; so are direction, width and threads.
        num_edges: Number of edges of the graph.
        ms: Median time of each contestant.
        rounds: Number of runs of each of them.
        differs: Contestants whose result is not ours.
    """

    shape: str
    operation: str
    direction: str
    width: int
    threads: int
    num_edges: int
    ms: dict[str, float]
    rounds: dict[str, int]
    differs: list[str] = field(default_factory=list)

    def ratio(self, name: str) -> float | None:
        """Return a contestant's time over ours; None if it did not run."""
        return self.ms[name] / self.ms[OURS] if name in self.ms else None

    @property
    def gigabytes_per_s(self) -> float:
        """Source rows read by ours, as if every one came from memory."""
        return self.num_edges * self.width * 4 / self.ms[OURS] / 1e6

    @property
    def roof_share(self) -> float | None:
        """Time of a gather of the same rows over the time of our sum."""
        return self.ms[ROOF] / self.ms[OURS] if ROOF in self.ms else None

    def to_json(self) -> dict[str, Any]:
        """Return the values by name, with what follows from them."""
        ratios = {name: self.ratio(name) for name in self.ms if name not in (OURS, ROOF)}
        return {
            **asdict(self),
            "ratio": ratios,
            "gigabytes_per_s": self.gigabytes_per_s,
            "roof_share": self.roof_share,
        }


def measure(race: KernelRace, *, progress: Callable[[str], None]) -> Iterator[Cell]:
    """Run all cases on all shapes.

    Args:
        race: Settings of a race.
        progress: Is told what is under way.

    Yields:
        Cells, as they are done.

    Raises:
        InputError: If a name in the race is unknown, or a peer is not installed.
    """
    cases = race.cases()
    threads_before = torch.get_num_threads()
    try:
        for name in race.shapes:
            for order in race.orders:
                shape = shapes.make(name, scale=race.scale, order=order, seed=race.seed)
                inputs = CaseInputs.of(shape, seed=race.seed)
                ours = Ours(inputs)
                progress(
                    f"{inputs.name}: {inputs.num_vertices} vertices, {inputs.num_edges} edges; "
                    f"ordered in {ours.order_s:.2f} s"
                )
                runners = {peer: peers.runner(peer, inputs) for peer in race.peers}
                for case in cases:
                    yield _measure_case(race, case, inputs, ours, runners)
    finally:
        torch.set_num_threads(threads_before)


def _measure_case(
    race: KernelRace, case: Case, inputs: CaseInputs, ours: Ours, runners: dict[str, Runner]
) -> Cell:
    torch.set_num_threads(case.threads)
    generator = torch.Generator().manual_seed(race.seed)
    x = torch.randn(inputs.num_vertices, case.width, generator=generator)
    grad = torch.randn(inputs.num_vertices, case.width, generator=generator)
    # DGL gives the gradient of a maximum over no rows to row 0.
    grad[inputs.indptr.diff() == 0] = 0
    jobs: dict[str, Callable[[], Tensor]] = {OURS: ours.job(case, x, grad)}
    if case.operation == "sum" and case.width >= _MIN_ROOF_WIDTH:
        jobs[ROOF] = ours.roof_job(grad if case.direction == "backward" else x)
        jobs[HALF] = ours.half_job(x)
    for name, runner in runners.items():
        job = runner.job(case, x, grad)
        if job is not None:
            jobs[name] = job
    times, differs = time_jobs(jobs, race)
    return Cell(
        shape=inputs.name,
        operation=case.operation,
        direction=case.direction,
        width=case.width,
        threads=case.threads,
        num_edges=inputs.num_edges,
        ms={name: 1e3 * statistics.median(values) for name, values in times.items()},
        rounds={name: len(values) for name, values in times.items()},
        differs=differs,
    )


def time_jobs(
    jobs: dict[str, Callable[[], Tensor]], race: KernelRace
) -> tuple[dict[str, list[float]], list[str]]:
    """Run every job once untimed and compared with ours, then all of them in turns.

    Args:
        jobs: By name of the contestant; one is ours.
        race: How often, and by which clock.

    Returns:
        times: Seconds of each run of each job.
        differs: Contestants whose result is not ours.
    """
    now = CLOCKS[race.clock]
    expected = jobs[OURS]()
    tolerance = _RELATIVE_TOLERANCE * max(float(expected.abs().max()), 1e-30)
    differs = []
    num_rounds = {}
    for name, job in jobs.items():
        start = now()
        result = job()
        is_slow = now() - start > race.slow_s
        num_rounds[name] = min(_MIN_ROUNDS, race.rounds) if is_slow else race.rounds
        if name not in (OURS, ROOF, HALF):
            # The maximum of nothing is -inf for some, and of equal maxima others choose another.
            result = result.nan_to_num(neginf=0.0)
            close = torch.isclose(result, expected, rtol=_RELATIVE_TOLERANCE, atol=tolerance)
            is_close = int((~close).sum()) <= _TIE_FRACTION * close.numel()
            differs += [] if is_close else [name]
        del result
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(race.rounds):
        for name, job in jobs.items():
            if number < num_rounds[name]:
                start = now()
                job()
                times[name].append(now() - start)
    return times, differs
