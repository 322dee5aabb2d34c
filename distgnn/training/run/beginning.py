"""The beginning of a run: checks, files and state that come before its first epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distgnn.comm.collective import of_rank_0, on_rank_0
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.comm.group import Group
    from distgnn.partition.directory.store import Part
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.loop.trainer import Trainer
    from distgnn.training.run.directory import RunDirectory

_OF_THE_CUT = ("source", "checksum", "partition")


def begins_with(
    about: dict[str, Any], part: Part, config: TrainConfig, group: Group
) -> dict[str, Any]:
    """Return the content of config.json of a run that begins now; collective.

    Args:
        about: Record of the source, as `distgnn.api.source.Source.to_json` gives it.
        part: Part of this rank.
        config: Settings of the run.
        group: All ranks.

    Returns:
        JSON values by name, the same on every rank.
    """
    from distgnn.training.data.identity import identify_graph

    return {
        **about,
        "graph": identify_graph(part, group),
        "num_ranks": group.size,
        "train": config.to_json(),
    }


def check_again(*, resume: bool, overwrite: bool) -> None:
    """Refuse to continue what is to be replaced.

    Raises:
        InputError: If both are asked for.
    """
    if resume and overwrite:
        raise InputError(
            "resume continues what is there, and overwrite replaces it; leave one of them out"
        )


def check_settings(run_dir: RunDirectory, config: TrainConfig, is_resuming: bool) -> None:
    """Check that an earlier run in the directory is resumed, and with its own settings.

    Args:
        run_dir: Directory of the run.
        config: Settings that were asked for.
        is_resuming: Whether the run is to be resumed.

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
    """Check that an earlier run in the directory continues with the graph it was begun with.

    The graph may lie elsewhere and may be cut in another way.

    Args:
        run_dir: Directory of the run.
        begin: Content of config.json if the run began now; see `begins_with`.

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
    elif begin["train"]["algorithm"] == "0c" or _is_amid_parts(run_dir, begin):
        # Each rank trains on what its part alone holds, so another cut is another training.
        changed += _differences(begun, begin, ("num_ranks", "partition", "cuts"))
    _refuse(run_dir, changed)


def _is_amid_parts(run_dir: RunDirectory, begin: dict[str, Any]) -> bool:
    """Return whether some epochs of a start on parts are done, and others are not."""
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.run.checkpoint import num_saved

    config = TrainConfig.from_json(begin["train"])
    quiet = config.quiet_epochs
    num_done = num_saved(run_dir.checkpoints)
    return config.starts_on_parts and quiet.start < num_done < quiet.stop


def _differences(begun: dict[str, Any], begin: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    changed: list[str] = []
    for name in names:
        then, now = begun.get(name), begin.get(name)
        if isinstance(then, dict) and isinstance(now, dict):
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


def prepare(
    run_dir: RunDirectory,
    config: TrainConfig,
    begin: dict[str, Any],
    *,
    is_resuming: bool,
    overwrites: bool,
) -> None:
    """Create the run directory, or empty it if the run begins again.

    Args:
        run_dir: Directory of the run.
        config: Settings of the run.
        begin: Content of config.json, which is written.
        is_resuming: Whether an earlier run stays.
        overwrites: Whether any earlier run may be removed.

    Raises:
        InputError: If it cannot be written, another job writes there, or the run that is there
            must stay.
    """
    run_dir.create()
    run_dir.lock.take()
    # Another job may have trained here since that was checked first, before there was a lock.
    if not overwrites:
        check_settings(run_dir, config, is_resuming)
    if is_resuming:
        check_graph(run_dir, begin)
        run_dir.drop_summary()
    elif run_dir.has_run():
        run_dir.clear()
    run_dir.write_config(begin)


def resume(
    trainer: Trainer, run_dir: RunDirectory, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Continue from the newest checkpoint of the run, and say so; collective.

    Args:
        trainer: Trainer that has not trained yet.
        run_dir: Directory of the run.
        say: Receives notes about the work under way, on rank 0.

    Returns:
        Records of the epochs that were trained before, on every rank.

    Raises:
        InputError: If no checkpoint is whole.
    """
    group = trainer.group
    checkpoints = trainer.checkpoints(run_dir.checkpoints)
    found = trainer.resume(checkpoints)
    records: list[dict[str, Any]] = []
    if group.rank == 0:
        for skipped in checkpoints.damaged:
            say(f"{skipped}; an older checkpoint is used")
        where = f"from epoch {trainer.num_epochs}" if found else "from the start: no checkpoint yet"
        say(f"resuming {where}")
        if found is not None and found.why_cold:
            if trainer.config.weight_rule.is_local:
                rest = "; gradients that were not told yet are dropped"
                has_rest = trainer.config.weight_rule.significance is not None
                say(
                    "ranks start from the mean of their models, which are of another partition"
                    + rest * has_rest
                )
            if not trainer.config.halo_rule.is_synchronous:
                say(f"delays start cold: {found.why_cold}")
            if trainer.config.halo_rule.is_adaptive:
                say(f"bits of codes are measured anew: {found.why_cold}")
    # In a study the others would go on with the next trial where this failed on one rank.
    on_rank_0(group, lambda: records.extend(run_dir.keep_metrics(trainer.num_epochs)))
    return of_rank_0(group, records)
