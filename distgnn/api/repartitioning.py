"""Repartitioning: from a partition directory to one with another number of parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from distgnn.api.partitioning import check_out
from distgnn.datasets.errors import InputError
from distgnn.datasets.limits import available_memory
from distgnn.machine.units import human_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.partition.directory.manifest import Manifest


class Repartitioned(NamedTuple):
    """A partition that was cut again.

    Attributes:
        manifest: Manifest of the new partition.
        predicted_peak_bytes: Memory that the work was predicted to take.
    """

    manifest: Manifest
    predicted_peak_bytes: int


def repartition_directory(
    directory: str,
    num_parts: int,
    out: str,
    *,
    refine: bool,
    imbalance: float | None,
    order: str,
    seed: int,
    overwrite: bool,
    say: Callable[[str], None],
) -> Repartitioned:
    """Merge or split the parts of a partition, without the graph it was made of.

    Args:
        directory: Partition directory to read.
        num_parts: Number of parts to write.
        out: Partition directory to write.
        refine: Whether to move edges and roots afterwards where fewer rows travel.
        imbalance: Largest part's edges over the mean, in refinement; None for its default.
        order: Name of the order of the vertices in a part.
        seed: Seed of the cuts and of the order.
        overwrite: Whether to replace an existing partition directory.
        say: Receives notes about the work under way.

    Returns:
        The new partition.

    Raises:
        InputError: If options exclude each other, several ranks were started, or a directory cannot
            be read or written.
    """
    from distgnn.comm.launch import detect
    from distgnn.partition.compilation import noting_compilation
    from distgnn.partition.directory.store import read_manifest
    from distgnn.partition.repartition.repartition import Wish, peak_bytes, repartition

    if detect().size > 1:
        raise InputError(
            f"distgnn repartition runs in one process, but {detect().size} were started; "
            "run it without mpirun"
        )
    if imbalance is not None and not refine:
        raise InputError("--imbalance takes no effect with --refine off; leave one of them out")
    wish = Wish(num_parts=num_parts, seed=seed, refine=refine, imbalance=imbalance, order=order)
    peak, free = peak_bytes(read_manifest(directory), wish), available_memory()
    check_out(out, is_overwriting=overwrite)
    say(f"memory: about {human_bytes(peak)} at the peak, of {human_bytes(free)} that are free")
    with noting_compilation(say):
        manifest = repartition(
            *(directory, out, wish), available=available_memory, overwrite=overwrite, progress=say
        )
    return Repartitioned(manifest, peak)
