"""A page of results, written from the files that benchmarks leave."""

from __future__ import annotations

import json
import statistics
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.bench import codecs, directories, partition
from distgnn.bench.epoch import largest_difference
from distgnn.bench.report import geometric_mean
from distgnn.datasets import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_NOT_PEERS = ("distgnn", "roof")


def read(path: str) -> dict[str, Any]:
    """Read what `distgnn bench ... --out` wrote.

    Args:
        path: Path of the file.

    Returns:
        Its values.

    Raises:
        InputError: If the file cannot be read, or is something else.
    """
    try:
        values = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON ({error}); give files of --out") from error
    if not isinstance(values, dict) or values.get("what") not in _SECTIONS:
        raise InputError(
            f"{path} holds no results; give files that `distgnn bench "
            f"{'|'.join(_SECTIONS)} --out` wrote"
        )
    return values


def page(documents: Sequence[dict[str, Any]]) -> str:
    """Write the results of some runs as Markdown.

    Args:
        documents: From `read`, in the order of the page.

    Returns:
        The text.
    """
    lines = [
        "# Results of the benchmarks",
        "",
        "Written by `distgnn bench report`, from the runs named below. A ratio is a contestant's",
        "time over ours in the same run, contestants taking turns: above 1 we are faster. Medians",
        "of rounds; a geometric mean is followed by the smallest ratio in brackets.",
    ]
    for document in documents:
        lines += ["", *_origin(document), ""]
        lines += _SECTIONS[document["what"]](document)
    return "\n".join(lines) + "\n"


def _origin(document: dict[str, Any]) -> list[str]:
    machine, peers = document["machine"], document["peers"]
    versions = {"torch": machine["versions"]["torch"], **peers}
    memory = machine["memory_bytes"] / 2**30 if machine["memory_bytes"] else float("nan")
    return [
        f"## `{document['command']}`",
        f"{document['date']}, commit {document['commit']}; {machine['processor']}, "
        f"{machine['cores_of_this_process']} cores, {machine['instruction_set']}, "
        f"{memory:.0f} GiB; load {document['load']}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items()),
    ]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _mean(ratios: Sequence[float]) -> str:
    return f"{geometric_mean(ratios):.2f} ({min(ratios):.2f})" if ratios else "-"


def _kernels(document: dict[str, Any]) -> list[str]:
    cells: list[dict[str, Any]] = document["cells"]
    names = list(
        dict.fromkeys(name for cell in cells for name in cell["ms"] if name not in _NOT_PEERS)
    )
    header = ["operation", "direction", "threads", "shape", "cells", "of the roof", *names]
    rows = []
    for key, group in _groups(cells):
        for shape in [*dict.fromkeys(cell["shape"] for cell in group), "all"]:
            some = [cell for cell in group if shape in (cell["shape"], "all")]
            shares = [cell["roof_share"] for cell in some if cell["roof_share"] is not None]
            ratios = (_ratios(some, name) for name in names)
            rows.append(
                [*key, shape, str(len(some)), _mean(shares), *(_mean(values) for values in ratios)]
            )
    lines = [*_table(header, rows), ""]
    slower = document["slower"]
    lines.append(f"A peer was faster in {len(slower)} of {len(cells)} cells.")
    lines += [f"- {line}" for line in slower]
    return [*lines, "", *_every_cell(cells, names)]


def _groups(cells: Sequence[dict[str, Any]]) -> list[tuple[list[str], list[dict[str, Any]]]]:
    def key(cell: dict[str, Any]) -> tuple[str, ...]:
        return cell["operation"], cell["direction"], str(cell["threads"])

    found = groupby(sorted(cells, key=key), key=key)
    return [(list(name), list(group)) for name, group in found]


def _ratios(cells: Iterable[dict[str, Any]], name: str) -> list[float]:
    return [cell["ratio"][name] for cell in cells if name in cell["ratio"]]


def _every_cell(cells: Sequence[dict[str, Any]], names: Sequence[str]) -> list[str]:
    columns = ("shape", "operation", "direction", "width", "threads")
    header = [*columns, "ms", "GB/s", "of the roof", *names]
    rows = []
    for cell in cells:
        share = cell["roof_share"]
        ratios = (cell["ratio"].get(name) for name in names)
        rows.append(
            [
                *(str(cell[column]) for column in columns),
                f"{cell['ms']['distgnn']:.2f}",
                f"{cell['gigabytes_per_s']:.1f}",
                "-" if share is None else f"{share:.2f}",
                *("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
            ]
        )
    return ["<details><summary>every cell</summary>", "", *_table(header, rows), "", "</details>"]


def _epochs(document: dict[str, Any]) -> list[str]:
    lines = []
    for result in document["results"]:
        race = result["race"]
        title = (
            f"{race['shape']}, {race['order']} order, scale {race['scale']:g}: "
            f"{result['num_vertices']} vertices, {result['num_edges']} edges; {race['model']}, "
            f"{race['layers']} layers of {_width(race)}, {race['threads']} threads, "
            f"{race['rounds']} rounds"
        )
        lines += [
            title,
            "",
            *_table(_EPOCH_HEADER, _contestants(result)),
            "",
            "Seconds of our epoch: "
            + ", ".join(f"{name} {seconds:.3f}" for name, seconds in result["phases"].items()),
            *(f"- {line}" for line in result["savings"]),
            "",
        ]
    return lines[:-1]


_EPOCH_HEADER = (
    "",
    "epoch, s",
    "over ours",
    "loss differs by",
    "from double by",
    "peak memory, MiB",
    "ours over it",
)


def _width(race: dict[str, Any]) -> str:
    heads = f"{race['heads']} heads of " if race["model"] in ("gat", "gatv2") else ""
    return f"{heads}{race['hidden']}"


def _contestants(result: dict[str, Any]) -> list[list[str]]:
    seconds = [statistics.median(times) for times in result["seconds"]]
    rows = []
    for index, name in enumerate(result["names"]):
        losses, exact = result["losses"], result.get("exact_losses")
        difference = largest_difference(losses[index], losses[0])
        error = "-" if exact is None else f"{largest_difference(losses[index], exact):.1e}"
        ratio = seconds[index] / seconds[0]
        peaks = result["peak_rss_bytes"]
        memory = ["-", "-"]
        if peaks is not None:
            memory = [f"{peaks[index] / 2**20:.0f}", f"{peaks[0] / peaks[index]:.2f}"]
        times = (f"{seconds[index]:.3f}", f"{ratio:.2f}")
        rows.append([name, *times, f"{difference:.1e}", error, *memory])
    return rows


def _partitions(document: dict[str, Any]) -> list[str]:
    return [
        "Edges, roots and clones: the largest part over the mean. B/edge: memory of the method",
        "beyond the graph, per edge.",
        "",
        *_table(partition.HEADER, [partition.row(result) for result in document["results"]]),
    ]


def _directories(document: dict[str, Any]) -> list[str]:
    return [
        "Whole programs, each in a process of its own, from the same file of edges to a directory",
        "of parts; of DGL, partition_graph with METIS, and DistGNN's Libra.",
        "",
        *_table(directories.HEADER, [directories.row(result) for result in document["results"]]),
    ]


def _codecs(document: dict[str, Any]) -> list[str]:
    return [
        "GB/s of the rows as float32. memcpy copies the same rows, gather picks them; 1 means that",
        "coding takes as long as that.",
        "",
        *_table(codecs.HEADER, [codecs.row(result) for result in document["results"]]),
    ]


_SECTIONS: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "kernels": _kernels,
    "epoch": _epochs,
    "partition": _partitions,
    "directories": _directories,
    "codecs": _codecs,
}
