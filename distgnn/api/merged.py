"""A partition directory for fewer ranks than it has parts, made beside it when it is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.api.source import Source, open_source
from distgnn.comm.collective import collectively, on_rank_0
from distgnn.comm.launch import without_launcher
from distgnn.datasets.errors import InputError
from distgnn.partition.directory.store import MANIFEST_NAME, read_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.comm.group import Group


def merged(source: Source, group: Group, say: Callable[[str], None]) -> Source:
    """Merge the parts of a partition to one for each rank; collective.

    The directory lies beside the one that it is made of, where every rank must see it. It is made
    once and stays.

    Args:
        source: Partition directory with more parts than there are ranks.
        group: All ranks.
        say: Receives notes about the work under way.

    Returns:
        The merged partition.

    Raises:
        InputError: If it cannot be made, or a rank does not see it.
    """
    directory = Path(source.values["source"])
    target = directory.with_name(f"{directory.name}.merged-{group.size}")
    on_rank_0(group, lambda: _make(source, target, group.size, say))
    return collectively(group, lambda: _open(source, target, say))


def _make(source: Source, target: Path, num_parts: int, say: Callable[[str], None]) -> None:
    assert source.manifest is not None, "a graph has one part"
    if (target / MANIFEST_NAME).is_file():
        if _is_made(source, target):
            return
        raise InputError(
            f"'{target}' was not made of '{source.values['source']}' as it is now; remove it, or "
            f"cut the graph into {num_parts} parts"
        )
    say(f"merging {source.num_parts} parts to {num_parts} in '{target}'")
    # METIS would keep the lock of the interpreter, which the heartbeats need.
    words = ["repartition", source.values["source"], "--parts", str(num_parts)]
    done = subprocess.run(
        [sys.executable, "-m", "distgnn", *words, "--out", str(target), "--json"],
        # As a job of one rank it ends with this process; else the next try would write there, too.
        env={**without_launcher(os.environ), "RANK": "0", "WORLD_SIZE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    # Another job may have made it meanwhile.
    if done.returncode and not _is_made(source, target):
        said = [line for line in done.stderr.splitlines() if line.startswith("distgnn: ")]
        why = said[-1].removeprefix("distgnn: ") if said else f"status {done.returncode}"
        raise InputError(f"the parts cannot be merged to {num_parts}: {why}")


def _is_made(source: Source, target: Path) -> bool:
    """Return whether the target holds the parts of the source, as it is now."""
    if source.manifest is None or not (target / MANIFEST_NAME).is_file():
        return False
    return read_manifest(target).options.get("from_partition") == source.manifest.fingerprint


def _open(source: Source, target: Path, say: Callable[[str], None]) -> Source:
    if not (target / MANIFEST_NAME).is_file():
        raise InputError(
            f"the merged parts in '{target}' are not seen by every rank; put the partition "
            "directory where all hosts see it"
        )
    return open_source({**source.values, "source": str(target)}, say)
