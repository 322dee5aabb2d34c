"""Partitioning out of core: which graphs stay on disk, and how they are cut there."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.api.partition_options import AUTO, OFF, ON
from distgnn.api.source import is_path
from distgnn.comm.launch import SINGLE
from distgnn.datasets.columns import Columns
from distgnn.datasets.errors import InputError
from distgnn.datasets.limits import available_memory
from distgnn.partition.directory.store import MANIFEST_NAME

if TYPE_CHECKING:
    from distgnn.api.partition_options import PartitionOptions
    from distgnn.comm.launch import Launch
    from distgnn.partition.directory.manifest import Manifest

_IN_MEMORY_FLAGS = (
    "--method",
    "--option",
    "--quality",
    "--assignment",
    "--inverse-relations",
    "--one-hot",
    "--deduplicate",
    "--drop-self-loops",
    "--edge-split",
)
# Both ends of an edge while the graph is cut, and all that an edge takes while it is read.
_GRAPH_EDGE_BYTES = 8
_READING_EDGE_BYTES = 26
# Of a line of an edge list of millions of vertices. Digits take less than half of it in an archive,
# sorted ones a quarter.
_TABLE_EDGE_BYTES = 16
_ARCHIVE_EDGE_BYTES = 4


def stays_on_disk(asked: PartitionOptions) -> bool:
    """Decide whether a graph is partitioned out of core.

    Args:
        asked: Partition that is asked for.

    Returns:
        Whether it is.

    Raises:
        InputError: If flags exclude each other.
    """
    from distgnn.partition.large.work import is_begun

    wish = asked.out_of_core
    given = [
        flag
        for flag in _IN_MEMORY_FLAGS
        if _value(asked, flag.removeprefix("--").replace("-", "_"))
    ]
    if wish == ON and given:
        raise InputError(
            f"--out-of-core on and {given[0]} exclude each other; leave one of them out"
        )
    unused = [f"--{flag}" for flag in ("memory", "work") if getattr(asked, flag)]
    in_memory = ["--out-of-core off"] if wish == OFF else given
    if unused and in_memory:
        raise InputError(f"{unused[0]} takes no effect with {in_memory[0]}; leave one of them out")
    if wish != AUTO:
        return bool(wish == ON)
    if given:
        _tell_why_in_memory(asked, given[0])
        return False
    if is_begun(_work(asked)):
        return True
    shortage = _shortage(asked)
    if shortage:
        asked.say(f"out of core: {shortage}")
        return True
    if unused:
        asked.say(
            f"in memory, where {unused[0]} takes no effect; --out-of-core on leaves the edges on "
            "disk"
        )
    return False


def _tell_why_in_memory(asked: PartitionOptions, flag: str) -> None:
    """Say so where the edges would stay on disk without a flag."""
    from distgnn.partition.large.work import is_begun

    if is_begun(_work(asked)):
        asked.say(
            f"in memory because of {flag}; what '{_work(asked)}' holds goes on without that flag"
        )
    # Other methods take other memory, and `auto` chooses one that fits.
    elif asked.method is None and asked.assignment is None:
        shortage = _shortage(asked)
        if shortage:
            asked.say(
                f"in memory because of {flag}, although {shortage}; without that flag the edges "
                "stay on disk"
            )


def _value(asked: PartitionOptions, name: str) -> object:
    return getattr(asked.source if hasattr(asked.source, name) else asked, name)


def is_finishing(asked: PartitionOptions) -> bool:
    """Return whether only the end of an interrupted run is missing: --out holds its partition.

    Args:
        asked: Partition that is asked for.

    Returns:
        Whether it is.
    """
    from distgnn.partition.large.work import is_complete

    return is_complete(_work(asked))


def _work(asked: PartitionOptions) -> Path:
    out = Path(asked.out).absolute()
    return Path(asked.work).absolute() if asked.work else out.with_name(f"{out.name}.work")


def _shortage(asked: PartitionOptions) -> str:
    """Say what the default method would take if it does not fit into memory; else nothing."""
    from distgnn.partition.methods.auto import NEEDS, USABLE_FRACTION

    source = asked.source.located(asked.say).source
    if not is_path(source):
        return ""
    num_vertices, num_edges = _numbers(Path(source))
    num_edges *= 1 + asked.source.undirected  # reverses are added
    # Whether edges go both ways, so that METIS takes less, is not known before they are read.
    cutting = NEEDS[0].bytes(num_vertices, num_edges) + _GRAPH_EDGE_BYTES * num_edges
    needed = max(cutting, _READING_EDGE_BYTES * num_edges)
    available = asked.memory or USABLE_FRACTION * available_memory()
    if needed <= available:
        return ""
    return (
        f"{NEEDS[0].method} takes about {needed / 2**30:.1f} GiB of the "
        f"{available / 2**30:.1f} GiB that it may"
    )


def _numbers(source: Path) -> tuple[int, int]:
    """Return vertices and edges of an array folder or an edge list, unread; else zeros."""
    from distgnn.datasets.array_folder import is_array_folder, num_edges_of, num_vertices_of
    from distgnn.datasets.edge_list import tables_of
    from distgnn.datasets.layouts import reader_of
    from distgnn.datasets.parquet_table import num_rows_of
    from distgnn.datasets.tables import TABLE_SUFFIXES

    if is_array_folder(source):
        return num_vertices_of(source) or 0, num_edges_of(source)
    is_table = source.name.endswith(TABLE_SUFFIXES)
    if not is_table and reader_of(source) is not None:
        return 0, 0
    if source.is_dir() and not is_table and not (source / MANIFEST_NAME).exists():
        source, is_table = tables_of(source)[0], True
    if not is_table or not source.is_file():
        return 0, 0
    if source.suffix == ".parquet":
        return 0, num_rows_of(source)
    edge_bytes = _ARCHIVE_EDGE_BYTES if source.suffix == ".gz" else _TABLE_EDGE_BYTES
    return 0, source.stat().st_size // edge_bytes


def partition_on_disk(asked: PartitionOptions, launch: Launch = SINGLE) -> Manifest | None:
    """Partition out of core.

    Args:
        asked: Partition that is asked for.
        launch: Place of this process among the ranks that share the work folder.

    Returns:
        The manifest as written; None on other ranks than the first.
    """
    from distgnn.partition.compilation import noting_compilation
    from distgnn.partition.large.crew import Crew
    from distgnn.partition.large.input import SourceText
    from distgnn.partition.large.pipeline import Places, Settings, assist, partition
    from distgnn.partition.large.roots import roots
    from distgnn.partition.large.work import is_begun
    from distgnn.partition.methods.auto import USABLE_FRACTION
    from distgnn.partition.refine.refinement import EDGE_BALANCE

    if asked.imbalance is not None and asked.refine is False:
        raise InputError(
            "--imbalance takes no effect out of core with --refine off; leave one of them out"
        )
    free = available_memory()
    settings = Settings(
        num_parts=asked.parts,
        seed=asked.seed,
        memory_bytes=asked.memory or int(USABLE_FRACTION * free / launch.local_size),
        is_memory_given=asked.memory is not None,
        ranks_per_host=launch.local_size,
        available_bytes=free,
        edge_balance=EDGE_BALANCE if asked.imbalance is None else asked.imbalance,
        is_refining=asked.refine is not False,
        order=asked.order,
    )
    places = Places(directory=Path(asked.out), work=_work(asked), overwrite=asked.overwrite)
    crew = Crew(places.work, launch.rank, launch.size)

    def given() -> SourceText:
        values = asked.source.located(asked.say).to_json()
        # `stays_on_disk` has refused the others.
        names = {field.name for field in fields(SourceText)}
        values = {**values, "columns": Columns.from_json(values["columns"])}
        return SourceText(**{key: value for key, value in values.items() if key in names})

    if crew.rank:
        assist(given, places, crew)
        return None
    if is_begun(places.work):
        asked.say(f"continuing from '{places.work}'")
    with noting_compilation(asked.say):
        return partition(
            given(), places, settings, choose_roots=roots, crew=crew, progress=asked.say
        )
