"""`distgnn bench`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.cli import bench_accuracy, bench_partition
from distgnn.cli.flags import MAX_COUNT, MAX_THREADS, number, path, scale, switch, whole
from distgnn.cli.output import add_json_flag, human_bytes, note, print_json, print_lines, table
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distgnn.bench.epoch import EpochRace, EpochResult
    from distgnn.bench.measure import Cell, KernelRace

# Flags that each benchmark reads; the others are refused beside it.
_TWINS = ("shapes", "orders", "scale", "seed")
_READ = {
    "kernels": (
        *(*_TWINS, "widths", "operations", "directions", "threads", "peers"),
        *("rounds", "slow_s", "clock", "quick", "fresh_memory"),
    ),
    "codecs": ("widths", "bits", "threads", "rounds", "clock", "quick", "fresh_memory", "seed"),
    "epoch": (
        *(*_TWINS, "threads", "peers", "rounds", "model", "layers"),
        *("hidden", "heads", "dropout", "memory", "exact"),
    ),
    "accuracy": (
        *("threads", "peers", "fresh_memory", "hidden", "dropout", "seeds", "epochs"),
        *("sampled_epochs", "fan_outs", "batch_size", "rates", "start", "goal", "plot"),
    ),
    "partition": (*_TWINS, "methods", "parts"),
    "directories": (*_TWINS, "methods", "parts"),
    "report": (),
}
_ALL_READ = ("what", "files", "out", "json")

HELP = "time kernels, codecs and epochs beside every peer that is installed; compare partitioners"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "what",
        choices=("kernels", "codecs", "epoch", "accuracy", "partition", "directories", "report"),
        help="what to measure; report writes a page from results",
    )
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="accuracy, partition, directories: graphs (see distgnn partition); report: results of "
        "--out",
    )
    parser.add_argument(
        "--shapes", metavar="A,B,...", help="twins (default: reddit,products,arxiv)"
    )
    parser.add_argument("--orders", metavar="A,B", help="of vertices (default: random,community)")
    parser.add_argument(
        "--scale",
        type=scale,
        default=1 / 16,
        metavar="A/B",
        help="of the twins (default: 1/16)",
    )
    parser.add_argument("--widths", metavar="W1,W2,...", help="default: 16,64,100,128,256")
    parser.add_argument("--operations", metavar="A,B,...", help="default: all; --quick: sum")
    parser.add_argument("--directions", metavar="A,B", help="default: forward,backward")
    parser.add_argument(
        "--threads", metavar="N1,N2,...", help="default: 1 and all cores; codecs: 1"
    )
    parser.add_argument("--peers", metavar="A,B,...", help="default: all that are installed")
    parser.add_argument("--rounds", type=whole(1), default=5, help="default: %(default)s")
    parser.add_argument(
        "--slow-s",
        type=number,
        default=2.0,
        help="a contestant that takes longer than this in a case runs only twice (default: 2)",
    )
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="kernels, codecs: read the time of day, or the time of the threads (default: wall)",
    )
    parser.add_argument("--seed", type=whole(0), default=0, help="default: %(default)s")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="kernels: only sums at widths 16 and 64, on all cores; codecs: 4 MiB of rows instead "
        "of 64, on one core",
    )
    parser.add_argument(
        "--fresh-memory",
        action="store_true",
        help="give freed memory back between calls, so that peers pay for new pages in each",
    )
    parser.add_argument(
        "--out",
        type=path,
        metavar="FILE",
        help="write the results to a file: JSON, or Markdown (report)",
    )
    add_json_flag(parser)
    parser.add_argument_group("codecs").add_argument(
        "--bits", metavar="B1,B2,...", help="bits of a value (default: 16,8,4,2,1)"
    )
    _add_epoch_arguments(parser)
    bench_accuracy.add_arguments(parser)
    bench_partition.add_arguments(parser)


def _add_epoch_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("epoch")
    group.add_argument(
        "--model", default="sage", help="sage, gcn, gat or gatv2 (default: %(default)s)"
    )
    group.add_argument("--layers", type=whole(1), default=3, help="default: %(default)s")
    group.add_argument(
        "--hidden",
        type=whole(1),
        default=256,
        help="of gat and gatv2, of each head (default: %(default)s)",
    )
    group.add_argument(
        "--heads", type=whole(1), default=4, help="of gat and gatv2 (default: %(default)s)"
    )
    group.add_argument(
        "--dropout", type=number, default=0.0, help="0 compares losses, too (default: %(default)s)"
    )
    group.add_argument(
        "--memory",
        type=switch,
        default=True,
        metavar="on|off",
        help="measure each contestant's peak memory in a process of its own (default: on)",
    )
    group.add_argument(
        "--exact",
        type=switch,
        default=False,
        metavar="on|off",
        help="without dropout, train the first peer in double precision as well, and say how far "
        "everybody's losses are from its (default: off)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure and report."""
    _check_flags(arguments)
    for flag, name in (("--out", arguments.out), ("--plot", arguments.plot)):
        if name is not None:
            _check_target(flag, Path(name))
    if arguments.what == "report":
        return _run_report(arguments)
    if arguments.what in ("partition", "directories"):
        return _run_partitions(arguments)
    if arguments.what == "accuracy":
        return _run_accuracy(arguments)
    if arguments.files:
        raise InputError(
            f"bench {arguments.what} reads no files, got '{arguments.files[0]}'; name the file to "
            "write with --out"
        )
    runs = {"codecs": _run_codecs, "epoch": _run_epochs, "kernels": _run_kernels}
    return runs[arguments.what](arguments)


def _check_flags(arguments: argparse.Namespace) -> None:
    """Refuse flags that the benchmark would not read."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    read = (*_ALL_READ, *_READ[arguments.what])
    for name, value in vars(parser.parse_args([arguments.what])).items():
        if name not in read and getattr(arguments, name) != value:
            owners = ", ".join(what for what, names in _READ.items() if name in names)
            raise InputError(
                f"--{name.replace('_', '-')} has no effect on bench {arguments.what}, only on "
                f"{owners}; leave it out"
            )


def _check_target(flag: str, file: Path) -> None:
    """Check before the work, which may take hours, that a file can be written."""
    if file.is_dir():
        reason = "it is a directory"
    elif not file.parent.is_dir():
        reason = f"there is no directory '{file.parent}'"
    elif not os.access(file if file.exists() else file.parent, os.W_OK):
        reason = "it is not writable"
    else:
        return
    raise InputError(f"cannot write '{file}': {reason}; choose another {flag}")


def _run_report(arguments: argparse.Namespace) -> int:
    """Write a page of results."""
    from distgnn.bench import markdown

    if not arguments.files:
        raise InputError("bench report needs the files that bench kernels or epoch wrote to --out")
    documents = [markdown.read(path) for path in arguments.files]
    page = markdown.page(documents)
    if arguments.out is not None:
        Path(arguments.out).write_text(page)
    if arguments.json:
        print_json({"page": page})
    elif arguments.out is None:
        print_lines(page.splitlines())
    return 0


def _run_partitions(arguments: argparse.Namespace) -> int:
    """Compare partitioning methods."""
    from distgnn.partition import METHODS

    found: list[dict[str, Any]] = []
    if arguments.what == "partition":
        methods = _names(arguments.methods, METHODS)
        parts = _numbers("--parts", arguments.parts, [4, 16, 64])
    else:
        methods = _names(arguments.methods, ("metis", "dgl-metis", "dgl-libra"))
        parts = _numbers("--parts", arguments.parts, [16])
    try:
        for result in bench_partition.results(arguments, methods, parts):
            found.append(result)
    finally:
        # Large graphs take hours: what was measured before an interrupt is kept.
        values = _write(arguments, {"results": found}, found)
    if arguments.json:
        print_json(values)
    else:
        print_lines(bench_partition.lines(arguments.what, found))
    return 0


def _run_accuracy(arguments: argparse.Namespace) -> int:
    """Train to an accuracy, beside samplers."""
    from distgnn.bench.peers import sampled

    peers = _names(arguments.peers, sampled.installed())
    found: list[dict[str, Any]] = []
    values: dict[str, Any] = {}
    for result in bench_accuracy.results(arguments, peers):
        found.append(result)
        # Now, as the graphs that are left may take hours.
        values = _write(arguments, {"results": found}, found)
    if arguments.json:
        print_json(values)
    else:
        print_lines(bench_accuracy.lines(found))
    return 0


def _run_codecs(arguments: argparse.Namespace) -> int:
    """Time the coding of rows beside a copy of them and plain torch."""
    from dataclasses import asdict

    from distgnn.bench import codecs
    from distgnn.bench.measure import keep_freed_memory
    from distgnn.kernels.codec import BITS

    race = codecs.CodecRace(
        widths=_numbers("--widths", arguments.widths, _WIDTHS),
        bits=_numbers("--bits", arguments.bits, BITS),
        threads=_numbers("--threads", arguments.threads, [1]),
        rounds=arguments.rounds,
        table_bytes=(4 if arguments.quick else 64) * 2**20,
        seed=arguments.seed,
        clock=arguments.clock,
    )
    if not arguments.fresh_memory:
        keep_freed_memory()
    found: list[dict[str, Any]] = []
    try:
        for result in codecs.measure(race, progress=note):
            found.append(result)
    finally:
        values = _write(arguments, {"race": asdict(race), "results": found}, found)
    if arguments.json:
        print_json(values)
        return 0
    print_lines(table(codecs.HEADER, [codecs.row(result) for result in found]))
    print_lines(["", "others: their time over ours, of the same rows"])
    return 0


def _write(
    arguments: argparse.Namespace, values: dict[str, Any], found: Sequence[object]
) -> dict[str, Any]:
    """Write results; a file of earlier ones stays where nothing was measured before a failure."""
    from distgnn.bench import origin

    return origin.write(arguments.what, values, arguments.out if found else None)


def _run_epochs(arguments: argparse.Namespace) -> int:
    """Train whole epochs beside the peers that are installed."""
    from distgnn.bench import epoch

    results: list[EpochResult] = []
    races = _epoch_races(arguments)
    try:
        for race in races:
            note(f"training on {race.shape}, {race.order} order, {race.threads} threads")
            results.append(
                epoch.measure_epochs(race, has_memory=arguments.memory, has_exact=arguments.exact)
            )
    finally:
        # Large twins take long: what was measured before an interrupt is kept.
        values = _write(arguments, {"results": [result.to_json() for result in results]}, results)
    if arguments.json:
        print_json(values)
    else:
        print_lines([line for result in results for line in _epoch_lines(result)])
    return 0


def _epoch_races(arguments: argparse.Namespace) -> list[EpochRace]:
    """Return all races, so that a value that is not allowed is refused before the first."""
    from distgnn.bench import epoch, peers, shapes

    cores = len(os.sched_getaffinity(0))
    installed = [name for name in epoch.PEERS if name in peers.installed()]
    return [
        epoch.EpochRace(
            shape=shape,
            order=order,
            scale=arguments.scale,
            model=arguments.model,
            layers=arguments.layers,
            hidden=arguments.hidden,
            heads=arguments.heads,
            dropout=arguments.dropout,
            threads=threads,
            peers=_names(arguments.peers, installed),
            rounds=arguments.rounds,
            seed=arguments.seed,
        )
        for shape in _names(arguments.shapes, tuple(shapes.TWINS))
        for order in _names(arguments.orders, ("random",))
        for threads in _numbers("--threads", arguments.threads, [cores])
    ]


def _epoch_lines(result: EpochResult) -> list[str]:
    race = result.race
    rows = [
        (
            name,
            f"{result.median_s(index):.3f}",
            f"{result.median_s(index) / result.median_s(0):.2f}",
            f"{result.loss_difference(index):.1e}",
            "-" if (error := result.loss_error(index)) is None else f"{error:.1e}",
            *_memory_cells(result.peak_rss_bytes, index),
        )
        for index, name in enumerate(result.names)
    ]
    phases = ", ".join(f"{name} {seconds:.3f}" for name, seconds in result.phases.items())
    return [
        (
            f"{race.shape} ({race.order} order, {result.num_vertices} vertices, {result.num_edges} "
            f"edges), {_model_text(race)}, {race.threads} threads"
        ),
        *table((*_EPOCH_HEADER, *_MEMORY_HEADER)[: len(rows[0])], rows),
        f"seconds of our epoch: {phases}",
        *result.savings,
        "",
    ]


def _model_text(race: EpochRace) -> str:
    heads = f"{race.heads} heads of " if race.model in ("gat", "gatv2") else ""
    return f"{race.model}, {race.layers} layers of {heads}{race.hidden}"


_EPOCH_HEADER = ("", "epoch_s", "over ours", "loss differs by", "from double by")
_MEMORY_HEADER = ("peak memory", "ours over it")


def _memory_cells(peaks: Sequence[int] | None, index: int) -> tuple[str, ...]:
    if peaks is None:
        return ()
    return human_bytes(peaks[index]), f"{peaks[0] / peaks[index]:.2f}"


def _run_kernels(arguments: argparse.Namespace) -> int:
    """Time single kernels beside the peers that are installed."""
    from distgnn.bench import report
    from distgnn.bench.measure import keep_freed_memory, measure

    race = _race(arguments)
    if not arguments.fresh_memory:
        keep_freed_memory()
    cells: list[Cell] = []
    try:
        for cell in measure(race, progress=note):
            cells.append(cell)
            names = report.contestants([cell])
            note(" ".join((*report.row(cell, names), "(" + ", ".join(names) + ")")))
    finally:
        # A full grid takes an hour: what was measured before an interrupt is kept.
        found = report.document(race, cells, has_fresh_memory=arguments.fresh_memory)
        values = _write(arguments, found, cells)
    if arguments.json:
        print_json(values)
        return 0
    print_lines(_lines(cells))
    return 0


def _race(arguments: argparse.Namespace) -> KernelRace:
    from distgnn.bench import cases, peers, shapes
    from distgnn.bench.measure import HALF, KernelRace

    is_quick = arguments.quick
    cores = len(os.sched_getaffinity(0))
    threads = [cores] if is_quick else sorted({1, cores})
    return KernelRace(
        shapes=_names(arguments.shapes, tuple(shapes.TWINS)),
        orders=_names(arguments.orders, shapes.ORDERS),
        scale=arguments.scale,
        operations=_names(arguments.operations, ("sum",) if is_quick else cases.OPERATIONS),
        directions=_names(arguments.directions, cases.DIRECTIONS),
        widths=_numbers("--widths", arguments.widths, [16, 64] if is_quick else _WIDTHS),
        threads=_numbers("--threads", arguments.threads, threads),
        # Always measured beside sums; `bench epoch` has it by this name.
        peers=[name for name in _names(arguments.peers, peers.installed()) if name != HALF],
        rounds=arguments.rounds,
        slow_s=arguments.slow_s,
        seed=arguments.seed,
        clock=arguments.clock,
    )


_WIDTHS = [16, 64, 100, 128, 256]


def _names(text: str | None, default: Sequence[str]) -> list[str]:
    return list(default) if text is None else [name for name in text.split(",") if name]


def _numbers(flag: str, text: str | None, default: Sequence[int]) -> list[int]:
    if text is None:
        return list(default)
    try:
        values = [int(value) for value in text.split(",")]
    except ValueError:
        values = [0]
    most = MAX_THREADS if flag == "--threads" else MAX_COUNT
    if not all(1 <= value <= most for value in values):
        raise InputError(
            f"{flag} must be positive numbers such as 16,64, at most {most}, got '{text}'"
        )
    return values


def _lines(cells: Sequence[Cell]) -> list[str]:
    from distgnn.bench import report

    names = report.contestants(cells)
    lines = table((*report.HEADER, *names), [report.row(cell, names) for cell in cells])
    lines += ["", "a contestant's time over ours:"]
    lines += table(report.MEANS_HEADER, report.means(cells))
    lines += ["", "time of a gather of the same rows over ours:"]
    lines += table(("shape", "geomean", "smallest"), report.roof_shares(cells))
    lines += [f"slower: {line}" for line in report.slower(cells)]
    lines += [
        f"differs: {cell.shape} {cell.operation} {cell.direction} width {cell.width}: {name}"
        for cell in cells
        for name in cell.differs
    ]
    return lines
