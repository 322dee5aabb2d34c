"""Several cuts of one graph between which a run turns, so that parts alone see other neighbours.

    epochs 0 .. K-1      on the first cut
    epochs K .. 2K-1     on the second one, and so on; after the last one comes the first again

A turn ends as a pause does, with an evaluation and a checkpoint. The next one goes on from there:
weights, optimizer and records do not depend on the cut, as all ranks have one model. Weight rules
with which each has its own are refused. One cut is in memory at a time.
Source: the repartitioning of Xu et al., Grappa, arXiv:2602.01872.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from distgnn.datasets.errors import InputError
from distgnn.partition.directory.store import MANIFEST_NAME, read_manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distgnn.comm.group import Group
    from distgnn.partition.directory.manifest import Manifest
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.run.directory import RunDirectory


class CutTurn(NamedTuple):
    """Epochs of a run on one of its cuts.

    Attributes:
        directory: The cut.
        until: Number of epochs after which it ends.
        about: Values of config.json that name the cuts; the same in every turn.
        is_first: Whether no turn came before it in this job.
        is_last: Whether the run, or its pause, ends with it.
        estimated_epoch_s: Seconds of an epoch that the first turn estimated, if that was asked for.
    """

    directory: str
    until: int
    about: dict[str, Any]
    is_first: bool
    is_last: bool
    estimated_epoch_s: float | None = None


def manifests_of(directories: Sequence[str], num_ranks: int) -> list[Manifest]:
    """Read the manifests of all cuts, and compare them with the first.

    Args:
        directories: Partition directories.
        num_ranks: Number of ranks, for the message.

    Returns:
        A manifest for each of them.

    Raises:
        InputError: If one is no partition directory, or of another graph or number of parts.
    """
    for directory in directories:
        if not (Path(directory) / MANIFEST_NAME).is_file():
            raise InputError(
                f"--cuts turns between partition directories, but '{directory}' is none; cut the "
                f"graph with distgnn partition --parts {num_ranks}"
            )
    manifests = [read_manifest(directory) for directory in directories]
    first = manifests[0]
    for directory, manifest in zip(directories, manifests, strict=True):
        for what, own, wanted in (
            ("parts", manifest.num_parts, first.num_parts),
            ("vertices", manifest.num_vertices, first.num_vertices),
            ("edges", manifest.num_edges, first.num_edges),
        ):
            if own != wanted:
                raise InputError(
                    f"--cuts names '{directory}', which has {own} {what} where '{directories[0]}' "
                    f"has {wanted}; give cuts of one graph into a part for each rank"
                )
    return manifests


def most_bytes(
    directories: Sequence[str], manifests: Sequence[Manifest], config: TrainConfig, rank: int
) -> int:
    """Predict the memory that a rank takes at most, of all cuts.

    Args:
        directories: Partition directories.
        manifests: Their manifests.
        config: The run. All rows count, which needs no walk over edges, and is the most.
        rank: Number of the part.

    Returns:
        Bytes.
    """
    from distgnn.forecast.memory import memory_of_ranks
    from distgnn.forecast.traffic import forecast

    whole = replace(config, receptive_field=False)
    return max(
        memory_of_ranks(manifest, forecast(directory, manifest, whole))[rank]
        for directory, manifest in zip(directories, manifests, strict=True)
    )


def num_done(run_dir: RunDirectory, group: Group) -> int:
    """Return the number of epochs of the newest checkpoint that is whole; collective.

    Args:
        run_dir: Directory of the run.
        group: All ranks.
    """
    from distgnn.training.run.checkpoint import Checkpoints

    found = Checkpoints(run_dir.checkpoints, group).read_newest()
    return 0 if found is None else found.num_epochs
