"""How a run begins and goes on: what is checked, written and read back before its epochs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from distgnn.cli.output import note
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from distgnn.cli.source import Source
    from distgnn.comm.group import Group
    from distgnn.partition.directory.store import Part
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.loop.trainer import Trainer
    from distgnn.training.run.directory import RunDirectory

_OF_THE_CUT = ("source", "checksum", "partition")


def begins_with(source: Source, part: Part, config: TrainConfig, group: Group) -> dict[str, Any]:
    """Say what the configuration of a run is that begins now; collective.

    Args:
        source: That the run is on.
        part: This rank's.
        config: The run.
        group: All ranks.

    Returns:
        JSON values by name, the same on every rank.
    """
    from distgnn.training.data.identity import identify_graph

    return {
        **source.to_json(),
        "graph": identify_graph(part, group),
        "num_ranks": group.size,
        "train": config.to_json(),
    }


def check_settings(run_dir: RunDirectory, config: TrainConfig, is_resuming: bool) -> None:
    """Check that a run that is there already is to go on, with the settings it was begun with.

    Args:
        run_dir: Of the run.
        config: Of the command.
        is_resuming: Whether the command says so.

    Raises:
        InputError: If not.
    """
    from distgnn.training.config.settings import TrainConfig

    if not run_dir.has_run():
        return
    if not is_resuming:
        raise InputError(
            f"'{run_dir.path}' already holds a run; continue it with --resume, replace it with "
            "--overwrite, or choose another --run"
        )
    begun = run_dir.read_config()
    _refuse(run_dir, TrainConfig.from_json(begun.get("train", {})).differences(config))


def check_graph(run_dir: RunDirectory, begin: dict[str, Any]) -> None:
    """Check that a run that is there goes on with its graph, wherever that lies and how it is cut.

    Args:
        run_dir: Of the run.
        begin: What the configuration of the run would be if it began now; see `begins_with`.

    Raises:
        InputError: If it is another graph.
    """
    if not run_dir.has_run():
        return
    begun = run_dir.read_config()
    changed = _differences(begun, begin, ("task", "graph"))
    # Where the file lies and how it is cut matters only for a graph that is not the same.
    if changed:
        changed += _differences(begun, begin, _OF_THE_CUT)
    elif begin["train"]["algorithm"] == "0c":
        # Each rank trains on what its part alone holds, so another cut is another training.
        changed += _differences(begun, begin, ("num_ranks", "partition"))
    _refuse(run_dir, changed)


def _differences(begun: dict[str, Any], begin: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    changed: list[str] = []
    for name in names:
        then, now = begun.get(name), begin[name]
        if isinstance(then, dict):
            changed += [
                f"{key} (begun with {then.get(key)}, now {value})"
                for key, value in now.items()
                if then.get(key) != value and (name, key) != ("task", "name")
            ]
        elif then != now:
            changed.append(f"{name} (begun with {then}, now {now})")
    return changed


def _refuse(run_dir: RunDirectory, changed: list[str]) -> None:
    if changed:
        raise InputError(
            f"cannot resume '{run_dir.path}' with other settings: {', '.join(changed)}; "
            "use the same or another --run"
        )


def prepare(run_dir: RunDirectory, is_resuming: bool, begin: dict[str, Any]) -> None:
    """Create the run directory, or empty it if it is to begin anew.

    Args:
        run_dir: Of the run.
        is_resuming: Whether what is there stays.
        begin: Its configuration, which is written.

    Raises:
        InputError: If it cannot be written.
    """
    run_dir.create()
    if run_dir.has_run() and not is_resuming:
        run_dir.clear()
    run_dir.write_config(begin)


def resume(trainer: Trainer, run_dir: RunDirectory) -> list[dict[str, Any]]:
    """Put the trainer where the run's newest checkpoint is, and say so; collective.

    Args:
        trainer: Fresh.
        run_dir: Of the run.

    Returns:
        The records of the epochs before, on every rank.

    Raises:
        InputError: If no checkpoint is whole.
    """
    group = trainer.group
    checkpoints = trainer.checkpoints(run_dir.checkpoints)
    found = trainer.resume(checkpoints)
    records: list[dict[str, Any]] = []
    if group.rank == 0:
        for skipped in checkpoints.damaged:
            note(f"{skipped}; an older checkpoint is used")
        where = f"from epoch {trainer.num_epochs}" if found else "from the start: no checkpoint yet"
        note(f"resuming {where}")
        if found is not None and found.why_cold:
            note(f"delays start cold: {found.why_cold}")
        records = run_dir.keep_metrics(trainer.num_epochs)
    return _of_rank_0(group, records)


def _of_rank_0(group: Group, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give every rank rank 0's records; collective."""
    first = group.all_gather_bytes(json.dumps(records).encode())[0]
    return list(json.loads(first))
