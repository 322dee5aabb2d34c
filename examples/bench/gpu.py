"""What can only be found out on a GPU, in one call: `python examples/bench/gpu.py [--scale 0.25]`.

1. The tests that need a CUDA device, and those of the kernels, compiled instead of interpreted.
2. Sums over twins of Reddit and ogbn-products: ours beside cuSPARSE (torch.sparse), PyG where it is
   installed, and what the device's memory allows: the bytes of one read of the source row of every
   edge, of the indices and of one write of the sums, at the speed of a copy on this device.
3. An epoch of GraphSAGE on both twins, and where its time goes.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from distgnn import kernels
from distgnn.bench import shapes
from distgnn.bench.cases import Inputs
from distgnn.bench.epoch import EpochPlan, twin_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
TWINS = ("reddit", "products")
WIDTHS = (16, 32, 64, 128, 256)
COPIED_BYTES = 1 << 28
WARM_UPS = 3


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


def bytes_per_second(device: torch.device, num_bytes: int, rounds: int) -> float:
    """Bytes that a copy reads and writes in a second."""
    source = torch.ones(num_bytes // 4, device=device)
    target = torch.empty_like(source)
    return 2 * num_bytes / seconds(lambda: target.copy_(source), device, rounds)


def contestants(inputs: Inputs, x: Tensor, out: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Ways to sum the rows of in-neighbours, by name."""
    device, indptr = x.device, inputs.indptr.to(x.device)
    indices = inputs.indices.to(device)
    narrow = x.bfloat16()

    def ours(rows: Tensor) -> Tensor:
        kernels.spmm_sum(indptr, indices, None, rows, out, accumulate=False)
        return out

    shape = (inputs.num_vertices,) * 2
    ones = torch.ones(len(indices), device=device)
    matrix = torch.sparse_csr_tensor(indptr, indices.long(), ones, shape, check_invariants=True)
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
    name: str, *, scale: float, widths: tuple[int, ...], rounds: int, device: torch.device
) -> list[str]:
    """A row of the table for each contestant and width."""
    inputs = Inputs.of(shapes.make(name, scale=scale, order="community"))
    speed = bytes_per_second(device, COPIED_BYTES if device.type == "cuda" else 1 << 20, rounds)
    num_vertices, num_edges = inputs.num_vertices, len(inputs.indices)
    lines = []
    for width in widths:
        x = torch.randn(num_vertices, width, device=device)
        out = torch.empty(num_vertices, width, device=device)
        moved = 4 * (num_edges * (width + 1) + num_vertices * (width + 2))
        limit, expected = moved / speed, None
        for contestant, run in contestants(inputs, x, out).items():
            try:
                result = run().float()
                taken = seconds(run, device, rounds)
            except torch.OutOfMemoryError:
                lines.append(f"| {name} | {width} | {contestant} | out of memory | |")
                continue
            expected = result.clone() if expected is None else expected
            error = float((result - expected).norm() / expected.norm())
            assert error < 0.01, f"{contestant} differs from ours by {error}"
            row = f"| {name} | {width} | {contestant} | {1e3 * taken:.3f} | {limit / taken:.2f} |"
            lines.append(row)
    return lines


def make_trainer(name: str, *, scale: float, device: torch.device):
    from distgnn.comm.single import SingleGroup
    from distgnn.comm.staged import StagedGroup
    from distgnn.nn.models import ModelConfig
    from distgnn.partition.store import whole_part
    from distgnn.train.config import TrainConfig
    from distgnn.train.ends import ModelEnds
    from distgnn.train.trainer import Trainer

    model = ModelConfig(model="sage", layers=2, hidden=128, dropout=0.5)
    plan = EpochPlan(
        shape=name, order="community", scale=scale, model="sage", layers=2, hidden=128, heads=1,
        dropout=0.5, threads=1, peers=(), rounds=1, seed=0,
    )  # fmt: skip
    graph = twin_graph(plan)
    group = StagedGroup(SingleGroup(), device)
    return Trainer(
        TrainConfig(model=model), ModelEnds.of(graph), whole_part(graph), group, device=device
    )


def measure_epoch(name: str, *, scale: float, rounds: int, device: torch.device) -> list[str]:
    """The time of an epoch, and the operations that take most of it."""
    from torch.profiler import ProfilerActivity, profile

    trainer = make_trainer(name, scale=scale, device=device)
    taken = seconds(trainer.train_epoch, device, rounds)
    activities = [ProfilerActivity.CPU]
    is_cuda = device.type == "cuda"
    if is_cuda:
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        trainer.train_epoch()
    by = "self_cuda_time_total" if is_cuda else "self_cpu_time_total"
    table = profiler.key_averages().table(sort_by=by, row_limit=12)
    return [f"epoch of {name}: {1e3 * taken:.2f} ms", table]


def run_tests() -> int:
    """Run the tests that a GPU makes possible; their exit status."""
    command = [sys.executable, "-m", "pytest", "-q", "-rf"]
    statuses = [
        subprocess.run([*command, *words], cwd=ROOT, check=False).returncode
        for words in (["-m", "gpu", "tests"], ["tests/gpu"])
    ]
    return max(statuses)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.25, help="of the twins (default: 0.25)")
    parser.add_argument("--rounds", type=int, default=20, help="timed runs (default: 20)")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.stderr.write(
            f"gpu.py: no CUDA device was found (torch {torch.__version__}); run it on a machine "
            "with a GPU, with a torch built for CUDA and distgnn[gpu]\n"
        )
        return 2
    device = torch.device("cuda", 0)
    status = run_tests()
    print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}, scale {options.scale}")
    print("| twin | width | | ms | share of the limit |\n|---|---|---|---|---|")
    common = {"scale": options.scale, "rounds": options.rounds, "device": device}
    for name in TWINS:
        print("\n".join(compare_sums(name, widths=WIDTHS, **common)), flush=True)
    for name in TWINS:
        print("\n".join(measure_epoch(name, **common)), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
