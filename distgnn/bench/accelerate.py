"""Epochs of another library's models, plain and accelerated, side by side; see `examples/`."""

from __future__ import annotations

import argparse
import copy
import gc
import json
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

from distgnn.bench.memory import forget_peak
from distgnn.bench.report import geometric_mean
from distgnn.bench.shapes import TWINS, make
from distgnn.bench.vertex_data import with_data
from distgnn.interop.accelerate import accelerate
from distgnn.settings.kinds import scale
from distgnn.training.loop.metrics import peak_rss_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor, nn

    from distgnn.datasets import Graph

    MakeModel = Callable[[int, int], nn.Module]
    MakeGraph = Callable[[Graph], Any]
    Apply = Callable[[nn.Module, Any, Tensor], Tensor]

OURS = "accelerated"
PLAIN = "plain"
# The first epoch builds what depends on the graph, the second what depends on the input.
_NUM_UNTIMED = 2
_NUM_MEMORY_EPOCHS = 3
# Of the memory that is free, what a contestant may take before it is said not to fit.
_MEMORY_SHARE = 0.9


@dataclass(frozen=True)
class Library:
    """Models of another library, and what they run on.

    Attributes:
        name: Name of the library.
        models: Each is made of the columns of the input and the number of classes.
        graphs: Functions that turn our graph into the library's forms of a graph, by name; `plain`
            is one of them.
        apply: Function that calls a model with a graph and the input.
        script: File whose `main` gives this to `race`.
    """

    name: str
    models: Mapping[str, MakeModel]
    graphs: Mapping[str, MakeGraph]
    apply: Apply
    script: str


@dataclass(frozen=True)
class Result:
    """One model on one graph.

    Attributes:
        shape: Name of the twin.
        model: Name of the model.
        seconds: Seconds of each timed epoch, by contestant.
        peak_bytes: Peak memory in a process of its own, by contestant; None if it does not fit.
        difference: Largest difference of outputs and of gradients of ours from the plain ones, as a
            share of the largest output and of the largest gradient.
    """

    shape: str
    model: str
    seconds: dict[str, list[float]]
    peak_bytes: dict[str, int | None]
    difference: float | None

    def speed(self, name: str) -> float | None:
        """Return the median epoch of a contestant over ours; None if it did not run."""
        if name not in self.seconds or OURS not in self.seconds:
            return None
        return statistics.median(self.seconds[name]) / statistics.median(self.seconds[OURS])

    def memory(self, name: str) -> float | None:
        """Return the peak of a contestant over ours; None if one is not known."""
        theirs, ours = self.peak_bytes.get(name), self.peak_bytes.get(OURS)
        return None if theirs is None or ours is None else theirs / ours


class Contest:
    """Contestants that train the same model, from the same weights, on the same graph.

    Args:
        library: Whose model.
        model: Its name.
        graph: With features, labels and a training mask.
        seed: Seed of the weights.
    """

    def __init__(self, library: Library, model: str, graph: Graph, seed: int) -> None:
        assert graph.labels is not None, "a twin has labels"
        assert graph.train_mask is not None, "a twin has masks"
        self._library = library
        self._graph = graph
        self._x = torch.from_numpy(np.asarray(graph.features))
        self._rows = torch.from_numpy(np.flatnonzero(graph.train_mask[0]))
        labels = torch.from_numpy(graph.labels.astype(np.int64))
        self._labels = labels[self._rows]
        torch.manual_seed(seed)
        self._model = library.models[model](self._x.shape[1], int(labels.max()) + 1)

    def step(self, name: str) -> Callable[[], None]:
        """Prepare an epoch of a contestant.

        Args:
            name: `accelerated`, or one of the library's graphs.
        """
        model = copy.deepcopy(self._model)
        if name == OURS:
            accelerate(model)
        given = self._library.graphs[PLAIN if name == OURS else name](self._graph)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

        def step() -> None:
            model.train()
            optimizer.zero_grad()
            out = self._library.apply(model, given, self._x)
            functional.cross_entropy(out[self._rows], self._labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

        return step

    def difference(self) -> float:
        """Compare outputs and gradients of ours with the plain ones, without dropout."""
        plain, ours = self._values(accelerated=False), self._values(accelerated=True)
        # Small gradients are small because large terms cancel: plain ones are as far from exact.
        of_gradients = max(float(gradient.abs().max()) for gradient in plain[1:])
        scales = [float(plain[0].abs().max()), *[of_gradients] * len(plain[1:])]
        return max(
            float((found - expected).abs().max()) / scale
            for expected, found, scale in zip(plain, ours, scales, strict=True)
        )

    def _values(self, *, accelerated: bool) -> list[Tensor]:
        model = copy.deepcopy(self._model).eval()
        if accelerated:
            accelerate(model)
        given = self._library.graphs[PLAIN](self._graph)
        out = self._library.apply(model, given, self._x)
        functional.cross_entropy(out[self._rows], self._labels).backward()  # type: ignore[no-untyped-call]
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        return [out.detach(), *gradients]


def race(library: Library, arguments: Sequence[str] | None = None) -> list[Result]:
    """Read arguments, let the contestants take turns, and print a table.

    Args:
        library: The models and what they run on.
        arguments: Arguments of the command line; those of this process if None.

    Returns:
        The results.
    """
    options = _parser(library).parse_args(arguments)
    torch.set_num_threads(options.threads)
    if options.memory_of is not None:
        sys.stdout.write(f"{_peak(library, options)}\n")
        return []
    results = []
    for shape in options.shapes:
        for model in options.models:
            results.append(_measure(library, shape, model, options))
            _write(_line(library, results[-1]))
    _write(*_means(library, results))
    if options.out:
        Path(options.out).write_text(json.dumps([asdict(one) for one in results]) + "\n")
    return results


def _parser(library: Library) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=f"Epochs of {library.name}'s models, plain and accelerated by distgnn."
    )
    add = parser.add_argument
    add("--shapes", nargs="+", choices=list(TWINS), default=["products", "reddit"])
    add("--models", nargs="+", choices=list(library.models), default=list(library.models))
    add("--scale", type=scale, default=1 / 16, metavar="A/B", help="of the twins (default: 1/16)")
    add("--order", choices=["random", "community"], default="random")
    add("--threads", type=int, default=torch.get_num_threads())
    add("--rounds", type=int, default=5, help="timed epochs of each contestant (default: 5)")
    add("--seed", type=int, default=0)
    add("--memory", choices=["on", "off"], default="on", help="measure peaks, in processes apart")
    add("--check", choices=["on", "off"], default="on", help="compare outputs and gradients")
    add("--out", help="write the measurements as JSON")
    add("--memory-of", metavar="CONTESTANT", help=argparse.SUPPRESS)
    return parser


def _graph(shape: str, options: argparse.Namespace) -> Graph:
    made = make(shape, scale=options.scale, order=options.order, seed=options.seed)
    return with_data(made, shape, options.seed)


def _measure(library: Library, shape: str, model: str, options: argparse.Namespace) -> Result:
    names = [OURS, *library.graphs]
    peaks: dict[str, int | None] = {}
    if options.memory == "on":
        peaks = {name: _peak_apart(library, shape, model, name, options) for name in names}
        # What does not fit alone does not fit beside the others.
        names = [name for name in names if peaks[name] is not None]
    contest = Contest(library, model, _graph(shape, options), options.seed)
    has_both = PLAIN in names and OURS in names
    difference = contest.difference() if options.check == "on" and has_both else None
    steps = {name: contest.step(name) for name in names}
    for _ in range(_NUM_UNTIMED):
        for step in steps.values():
            step()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(options.rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
    return Result(shape, model, seconds, peaks, difference)


def _peak_apart(
    library: Library, shape: str, model: str, name: str, options: argparse.Namespace
) -> int | None:
    """Return a contestant's peak in a process of its own; None if it fails."""
    flags = {
        "--shapes": shape,
        "--models": model,
        "--scale": options.scale,
        "--order": options.order,
        "--threads": options.threads,
        "--seed": options.seed,
        "--memory-of": name,
    }
    given = [str(part) for flag in flags.items() for part in flag]
    command = [sys.executable, library.script, *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return int(done.stdout.splitlines()[-1])
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    sys.stderr.write(f"{shape} {model} {name} failed in a process of its own: {last}\n")
    return None


def _peak(library: Library, options: argparse.Namespace) -> int:
    """Train some epochs in this process, within the memory that is free."""
    contest = Contest(library, options.models[0], _graph(options.shapes[0], options), options.seed)
    gc.collect()
    forget_peak()
    limit = int(_MEMORY_SHARE * _available_bytes())
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    step = contest.step(options.memory_of)
    for _ in range(_NUM_MEMORY_EPOCHS):
        step()
    return peak_rss_bytes()


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    values = dict(line.split(":") for line in lines)
    return 1024 * int(values["MemAvailable"].split()[0])


def _line(library: Library, result: Result) -> str:
    parts = [f"{result.shape} {result.model}:"]
    for name in library.graphs:
        speed, memory = result.speed(name), result.memory(name)
        if speed is None:
            parts.append(f"{name} does not run here;")
            continue
        parts.append(f"{name} takes {speed:.2f} x the time")
        parts[-1] += ";" if memory is None else f" and {memory:.2f} x the memory;"
    if OURS in result.seconds:
        parts.append(f"an epoch takes {1e3 * statistics.median(result.seconds[OURS]):.0f} ms")
    if result.difference is not None:
        parts.append(f"and differs by {result.difference:.1e}")
    return " ".join(parts)


def _means(library: Library, results: Sequence[Result]) -> list[str]:
    lines = []
    for shape in dict.fromkeys(result.shape for result in results):
        for name in library.graphs:
            of_shape = [result for result in results if result.shape == shape]
            speeds = [found for one in of_shape if (found := one.speed(name)) is not None]
            memories = [found for one in of_shape if (found := one.memory(name)) is not None]
            if speeds:
                line = f"{shape}, geometric mean of {len(speeds)}: {name} takes "
                line += f"{geometric_mean(speeds):.2f} x the time (least {min(speeds):.2f})"
                if memories:
                    line += f" and {geometric_mean(memories):.2f} x the memory"
                    line += f" (least {min(memories):.2f})"
                lines.append(line)
    return lines


def _write(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
