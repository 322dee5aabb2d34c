"""Checks that need a GPU, in one call: `python examples/bench/gpu.py [--scale 1]`.

- tests: the tests that need a CUDA device, and those of the kernels, compiled instead of
  interpreted.
- losses: 20 epochs on the GPU beside those on the processor, and the largest difference.
- ranks: 20 epochs of two ranks that share the GPU, by gloo, beside those of one.
- sums: sums over twins of Reddit and ogbn-products, beside cuSPARSE (torch.sparse) and, where it is
  installed, PyG. The limit of the device's memory is there, too. It is the time to read the source
  row of every edge and the indices, and to write the sums, at the speed of a copy.
- epochs: epochs of GraphSAGE on both twins, and of GAT on a twin of ogbn-arxiv, beside PyG where it
  is installed, and the phases of ours.

Each is a process of its own, which is stopped when it takes too long; its results so far are
printed. `--only NAME` runs one of them. Twins are made on the processor meanwhile, a minute each at
full scale. Full scale needs 40 GiB on the GPU and 60 GiB on its host; a smaller GPU takes a smaller
scale.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from distgnn import kernels
from distgnn.bench import shapes
from distgnn.bench.cases import CaseInputs
from distgnn.bench.epoch import EpochRace, measure_epochs, our_trainer, twin_graph
from distgnn.bench.shapes import Shape
from distgnn.forecast.memory import predict_added_bytes
from distgnn.nn.models import GNN
from distgnn.settings.kinds import scale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from distgnn.datasets import Graph
    from distgnn.training.loop.trainer import Trainer

ROOT = Path(__file__).resolve().parents[2]
TWINS = ("reddit", "products")
EPOCHS_OF: tuple[tuple[str, dict[str, object]], ...] = (
    ("products", {}),
    ("reddit", {}),
    ("arxiv", {"model": "gat", "hidden": 64}),
)
WIDTHS = (16, 32, 64, 128, 256)
COPIED_BYTES = 1 << 30
WARM_UPS = 3
EPOCHS = 20
ROUNDING = 1e-7


def seconds(action: Callable[[], object], device: torch.device, rounds: int) -> float:
    """Median time of an action whose end is waited for."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    times = []
    for number in range(WARM_UPS + rounds):
        wait()
        start = time.perf_counter()
        action()
        wait()
        if number >= WARM_UPS:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def twin(name: str, options: argparse.Namespace) -> Shape:
    """A twin in community order, from the folder of twins where it has been made."""
    path = Path(options.twins or "", f"{name}.npz")
    if not path.is_file():
        return shapes.make(name, scale=options.scale, order="community")
    with np.load(path) as arrays:
        return Shape(name=name, order="community", **arrays)


def make_twin(name: str, options: argparse.Namespace) -> None:
    """Write a twin into the folder of twins."""
    shape = twin(name, options)
    part = Path(options.twins, f"{name}.part.npz")
    np.savez(part, indptr=shape.indptr, indices=shape.indices, t_edge=shape.t_edge)
    part.rename(Path(options.twins, f"{name}.npz"))


def bytes_per_second(device: torch.device, num_bytes: int, rounds: int) -> float:
    """Bytes that a copy reads and writes in a second."""
    source = torch.ones(num_bytes // 4, device=device)
    target = torch.empty_like(source)
    return 2 * num_bytes / seconds(lambda: target.copy_(source), device, rounds)


def contestants(inputs: CaseInputs, x: Tensor, out: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Ways to sum the rows of in-neighbours, by name; ours is the first."""
    device, indptr = x.device, inputs.indptr.to(x.device)
    indices = inputs.indices.to(device)
    graph = kernels.Csr(indptr, indices, inputs.num_vertices)
    narrow = x.bfloat16()

    def ours(rows: Tensor) -> Tensor:
        kernels.spmm_sum(graph, None, rows, out, accumulate=False)
        return out

    shape = (inputs.num_vertices,) * 2
    ones = torch.ones(len(indices), device=device)
    matrix = torch.sparse_csr_tensor(indptr.int(), indices, ones, shape, check_invariants=True)
    found = {
        "distgnn": lambda: ours(x),
        "distgnn bf16": lambda: ours(narrow),
        "torch.sparse": lambda: torch.sparse.mm(matrix, x),
    }
    if importlib.util.find_spec("torch_geometric") is not None:
        from torch_geometric.utils import scatter

        sources = indices.long()
        rows = torch.arange(inputs.num_vertices, device=device)
        targets = rows.repeat_interleave(indptr.diff())
        found["PyG"] = lambda: scatter(
            x[sources], targets, dim=0, dim_size=inputs.num_vertices, reduce="sum"
        )
    return found


def compare_sums(
    shape: Shape, *, widths: tuple[int, ...], rounds: int, device: torch.device
) -> Iterator[tuple[str, int, str, float, float]]:
    """Twin, width, contestant, seconds and share of the limit of each that did it right."""
    inputs, name = CaseInputs.of(shape), shape.name
    speed = bytes_per_second(device, COPIED_BYTES if device.type == "cuda" else 1 << 20, rounds)
    num_vertices, num_edges = inputs.num_vertices, len(inputs.indices)
    for width in widths:
        x = torch.randn(num_vertices, width, device=device)
        out = torch.empty(num_vertices, width, device=device)
        expected = None
        for contestant, run in contestants(inputs, x, out).items():
            try:
                result = run().float()
                taken = seconds(run, device, rounds)
            except torch.OutOfMemoryError:
                print(f"{name}, width {width}: {contestant} runs out of memory", flush=True)
                torch.cuda.empty_cache()
                continue
            expected = result.clone() if expected is None else expected
            error = float((result - expected).norm() / expected.norm())
            if not error < 0.01:
                print(f"{name}, width {width}: {contestant} is wrong by {error}", flush=True)
                continue
            item = 2 if contestant.endswith("bf16") else 4
            moved = num_edges * (item * width + 4) + num_vertices * (4 * width + 8)
            yield name, width, contestant, taken, moved / speed / taken


def run_sums(options: argparse.Namespace, device: torch.device) -> None:
    """Print a table of times, then means over its rows."""
    print("| twin | width | | ms | share of the limit |\n|---|---|---|---|---|")
    common = {"widths": WIDTHS, "rounds": options.rounds, "device": device}
    ratios, shares, ours = defaultdict(list), defaultdict(list), 0.0
    for shape in (twin(name, options) for name in TWINS):
        for name, width, contestant, taken, share in compare_sums(shape, **common):
            row = f"| {name} | {width} | {contestant} | {1e3 * taken:.3f} | {share:.2f} |"
            print(row, flush=True)
            ours = taken if contestant == "distgnn" else ours
            ratios[contestant].append(taken / ours)
            shares[contestant].append(share)
    for contestant, values in ratios.items():
        mean, share = (statistics.geometric_mean(v) for v in (values, shares[contestant]))
        print(f"{contestant}: {mean:.2f} times our time, {share:.2f} of the limit", flush=True)


def race_of(name: str, scale: float, **changes: object) -> EpochRace:
    """An epoch of GraphSAGE on a twin."""
    values: dict[str, Any] = {
        "shape": name, "order": "community", "scale": scale, "model": "sage", "layers": 3,
        "hidden": 128, "heads": 4, "dropout": 0.5, "threads": torch.get_num_threads(), "peers": (),
        "rounds": 1, "seed": 0,
    }  # fmt: skip
    return EpochRace(**{**values, **changes})


def measure_epoch(race: EpochRace, graph: Graph, device: torch.device) -> list[str]:
    """The time of an epoch of each contestant and of our phases, and our longest operations."""
    title = f"epoch of {race.model} on {race.shape}"
    lines: list[str] = []
    result, peers = None, list(race.peers)
    while result is None:
        # Its error holds what ran out of memory until it has been caught.
        with suppress(torch.OutOfMemoryError):
            result = measure_epochs(replace(race, peers=peers), device=device, graph=graph)
        if result is None and not peers:
            return [*lines, f"{title}: ours alone runs out of memory"]
        if result is None:
            lines.append(f"{title}: ours beside {', '.join(peers)} runs out of memory")
            peers.pop()
            torch.cuda.empty_cache()
    for index, contestant in enumerate(result.names):
        taken = result.median_s(index)
        ratio = taken / result.median_s(0)
        lines.append(f"{title}: {contestant} {1e3 * taken:.2f} ms, {ratio:.2f} times ours")
    phases = ", ".join(f"{phase} {1e3 * value:.2f} ms" for phase, value in result.phases.items())
    trainer = our_trainer(graph, race, device=device)
    return [*lines, f"{title}: {phases}", profile_of(trainer, device)]


def profile_of(trainer: Trainer, device: torch.device) -> str:
    """A table of the operations of an epoch that take longest, and the peak of memory."""
    from torch.profiler import ProfilerActivity, profile

    activities, is_cuda = [ProfilerActivity.CPU], device.type == "cuda"
    assert isinstance(trainer.model, GNN), "a race is of a model of ours"
    predicted = predict_added_bytes(trainer.model, trainer.graphs)
    predicted += torch.cuda.memory_allocated(device) if is_cuda else 0
    trainer.train_epoch()
    if is_cuda:
        torch.cuda.reset_peak_memory_stats(device)
    if is_cuda:
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        trainer.train_epoch()
    by = "self_cuda_time_total" if is_cuda else "self_cpu_time_total"
    table = profiler.key_averages().table(sort_by=by, row_limit=16, max_name_column_width=48)
    peak = torch.cuda.max_memory_allocated(device) if is_cuda else 0
    shown = f"{peak / 2**30:.2f} GiB, predicted {predicted / 2**30:.2f} GiB"
    return f"{table}\npeak of the epoch on the device: {shown}"


def run_epochs(options: argparse.Namespace, device: torch.device) -> None:
    """Print where the time of epochs goes."""
    is_there = importlib.util.find_spec("torch_geometric") is not None
    peers = ("distgnn-bf16", "pyg") if is_there else ("distgnn-bf16",)
    for name, changes in EPOCHS_OF:
        common = {"peers": peers, "rounds": options.rounds, **changes}
        race = race_of(name, options.scale, **common)
        graph = twin_graph(race, twin(name, options))
        print("\n".join(measure_epoch(race, graph, device)), flush=True)
        torch.cuda.empty_cache()


def run_losses(options: argparse.Namespace, device: torch.device) -> None:
    """Print how far losses on the device are from those on the processor, on small twins.

    Beside it how far rounding goes there alone: those of weights that begin a rounding apart.
    """
    near = torch.device("cpu")
    for model in ("sage", "gcn", "gat"):
        race = race_of("arxiv", min(options.scale, 0.1), model=model, hidden=32)
        graph, losses = twin_graph(race), []
        for where, change in ((near, 0.0), (device, 0.0), (near, ROUNDING)):
            trainer = our_trainer(graph, race, device=where)
            with torch.no_grad():
                for weight in trainer.model.parameters():
                    weight.mul_(1 + change)
            losses.append([trainer.train_epoch() for _ in range(EPOCHS)])
        print(f"{model}: {difference(*losses[:2])}", flush=True)
        print(f"{model}, weights changed by {ROUNDING}: {difference(*losses[::2])}", flush=True)


def difference(expected: list[float], got: list[float]) -> str:
    pairs = list(zip(expected, got, strict=True))
    absolute, relative = (
        max(abs(a - b) / (abs(a) if is_relative else 1) for a, b in pairs)
        for is_relative in (False, True)
    )
    return (
        f"losses of {len(got)} epochs, {expected[0]:.3g} to {expected[-1]:.3g}, differ by "
        f"{absolute:.1e} at most, {relative:.1e} of a loss"
    )


def run_ranks(options: argparse.Namespace, device: torch.device) -> None:
    """Print how far losses of two ranks on one device are from those of one, on Cora."""
    del options, device
    distgnn = [sys.executable, "-m", "distgnn"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node"]
    # Not from the root of the sources, which Python would import instead of what is installed.
    with tempfile.TemporaryDirectory() as folder:

        def run(*words: str) -> None:
            subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)

        run(*distgnn, "partition", "cora", "--parts", "2", "--out", "parts")
        for model in ("sage", "gat"):
            train = [*distgnn, "train", "--model", model, "--epochs", str(EPOCHS), "--quiet"]
            train += ["--device", "cuda"]
            run(*train, "cora", "--run", f"one-{model}")
            both = [*train, "parts", "--run", f"two-{model}", "--backend", "gloo"]
            run(*torchrun, "2", "--", *both)
            losses = []
            for name in ("one", "two"):
                lines = Path(folder, f"{name}-{model}", "metrics.jsonl").read_text().splitlines()
                losses.append([json.loads(line)["loss"] for line in lines])
            print(f"{model} on two ranks: {difference(*losses)}", flush=True)


def run_tests(options: argparse.Namespace, device: torch.device) -> None:
    """Run the tests that a GPU makes possible."""
    del options, device
    command = [sys.executable, "-m", "pytest", "-q", "-rf"]
    if importlib.util.find_spec("xdist") is not None:
        command += ["-n", "auto", "--maxprocesses", "8"]
    statuses = [
        subprocess.run([*command, *words], cwd=ROOT, check=False).returncode
        for words in (["tests/gpu"], ["-m", "gpu", "--ignore", "tests/gpu", "tests"])
    ]
    if any(statuses):
        raise SystemExit(max(statuses))


SECTIONS = {
    "tests": run_tests,
    "losses": run_losses,
    "ranks": run_ranks,
    "sums": run_sums,
    "epochs": run_epochs,
}


def run_all(options: argparse.Namespace) -> int:
    """Run each section as a process; how many failed."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["--scale", str(options.scale), "--rounds", str(options.rounds), "--twins", folder]
        command = [sys.executable, __file__, *words, "--only"]
        makers = [subprocess.Popen([*command, f"make-{name}"]) for name in TWINS]
        try:
            return sum(run_section(name, command, makers, options.limit) for name in SECTIONS)
        finally:
            for maker in makers:
                maker.kill()
                maker.wait()


def run_section(
    name: str, command: list[str], makers: list[subprocess.Popen[bytes]], limit: float
) -> bool:
    """Run a section as a process; whether it failed."""
    if name in ("sums", "epochs"):
        for maker in makers:
            maker.wait()
    print(f"\n## {name}", flush=True)
    with subprocess.Popen([*command, name], start_new_session=True) as process:
        try:
            status: int | str = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            status = f"no end after {limit:g} s"
    if status:
        print(f"{name} failed: {status}", flush=True)
    return bool(status)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=scale, default=1.0, help="of the twins (default: 1)")
    parser.add_argument("--rounds", type=int, default=20, help="timed runs (default: 20)")
    parser.add_argument("--limit", type=float, default=600, help="seconds of each (default: 600)")
    parser.add_argument("--twins", help="folder of twins that were made before")
    choices = [*SECTIONS, *(f"make-{name}" for name in TWINS)]
    parser.add_argument("--only", choices=choices, help="run this alone, without a limit")
    options = parser.parse_args()
    if options.only and options.only.startswith("make-"):
        make_twin(options.only.removeprefix("make-"), options)
        return 0
    if not torch.cuda.is_available():
        sys.stderr.write(
            f"gpu.py: no CUDA device was found (torch {torch.__version__}); run it on a machine "
            "with a GPU, with a torch built for CUDA and distgnn[gpu]\n"
        )
        return 2
    device = torch.device("cuda", 0)
    print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}, scale {options.scale}")
    if options.only is None:
        return run_all(options)
    SECTIONS[options.only](options, device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
