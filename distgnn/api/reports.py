"""Pages about partitions and runs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.api.directories import forecast_values, manifest_json
from distgnn.api.run import Run, Series
from distgnn.api.settings import Keywords, config_from
from distgnn.datasets.errors import InputError
from distgnn.partition.directory.store import MANIFEST_NAME, read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.run.directory import RunDirectory

    Subject = str | os.PathLike[str] | Run | Series

_SUFFIXES = (".html", ".htm")
# What reading a value raises that is missing from a JSON file, or of another kind.
_LACKS = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError)
STUDY = "study.json"
"""File that only the directory of a study has."""


def report(
    subject: Subject | Sequence[Subject], out: str | os.PathLike[str], **settings: Any
) -> Path:
    """Write a page about a partition, a run or a study: one HTML file that needs nothing else.

    Args:
        subject: Directory of a partition, of a run, of a series or of a study; or a run; or several
            runs, which are shown side by side.
        out: File to write, which ends in .html or .htm.
        settings: Settings of the model and of its training, as for `train`; for partitions only.

    Returns:
        The file.

    Raises:
        InputError: If a directory is none of these, a setting is not allowed, or the file cannot be
            written.
    """
    words = Keywords("report", settings)
    config = config_from(words)
    words.refuse_others(("out",))
    subjects = [subject] if isinstance(subject, str | os.PathLike | Run | Series) else subject
    paths = [os.fspath(one.path if isinstance(one, Run | Series) else one) for one in subjects]
    write_page(paths, Path(out), config)
    return Path(out)


def write_page(subjects: Sequence[str], out: Path, config: TrainConfig) -> tuple[str, int]:
    """Write a page.

    Args:
        subjects: Directory of a partition, of a run, of a series or of a study; or several runs.
        out: File to write.
        config: Settings of a run on the partition.

    Returns:
        Kind of the subject (partition, run, runs or study), and the bytes of the page.

    Raises:
        InputError: If the directory is neither, or the file cannot be written.
    """
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.run.directory import RunDirectory

    if out.suffix not in _SUFFIXES:
        raise InputError(f"--out must end in {' or '.join(_SUFFIXES)}, got '{out}'")
    if not subjects:
        raise InputError("there is nothing to report on; give a partition, a run or several runs")
    is_partition = len(subjects) == 1 and (Path(subjects[0]) / MANIFEST_NAME).is_file()
    if not is_partition and config != TrainConfig():
        raise InputError(
            "flags of the model have no effect on a run, which has its own; leave them out"
        )
    if len(subjects) != 1:
        return "runs", _write(out, _page_of_runs(subjects))
    (subject,) = subjects
    run_dir = RunDirectory(Path(subject))
    if is_partition:
        from distgnn.pages.partition import partition_page

        manifest = read_manifest(subject)
        values = forecast_values(subject, manifest, config)
        return "partition", _write(out, partition_page({**manifest_json(manifest), **values}))
    if run_dir.has_run():
        return "run", _write(out, _page_of_run(run_dir))
    if (Path(subject) / STUDY).is_file():
        return "study", _write(out, _page_of_study(Path(subject)))
    if runs := _runs_of_series(Path(subject)):
        return "runs", _write(out, _page_of_runs(runs, submission(Path(subject))))
    raise InputError(f"'{subject}' is neither a partition directory nor that of a run; give one")


def _runs_of_series(folder: Path) -> list[str]:
    """Return the directories of the runs of a series; none if it is no series."""
    from distgnn.training.run.directory import RunDirectory
    from distgnn.training.run.series import FILE

    if not (folder / FILE).is_file():
        return []
    series = RunDirectory(folder).read_json(FILE)
    with _whole(folder / FILE):
        if not series["runs"]:
            raise LookupError("runs is empty")
        # A longer series may have been here before.
        return [str(folder / run["run"]) for run in series["runs"]]


def submission(folder: Path) -> dict[str, str]:
    """Return what a leaderboard asks of a series: figures over its runs, hardware, command.

    Args:
        folder: Directory of the series, or any other.

    Returns:
        Text by name, in the order of a form; nothing if it is no series that has ended.
    """
    from distgnn.pages.submission import submission_of
    from distgnn.training.run.directory import RunDirectory
    from distgnn.training.run.series import FILE

    if not (folder / FILE).is_file():
        return {}
    series = RunDirectory(folder).read_json(FILE)
    with _whole(folder / FILE):
        first = RunDirectory(folder / series["runs"][0]["run"])
        return submission_of(series, first.read_config())


def _page_of_runs(subjects: Sequence[str], facts: dict[str, str] | None = None) -> str:
    from distgnn.pages.runs import ShownRun, runs_page
    from distgnn.training.run.directory import SUMMARY, RunDirectory

    shown = []
    for subject, name in zip(subjects, _told_apart(subjects), strict=True):
        run_dir = RunDirectory(Path(subject))
        if not run_dir.has_run():
            raise InputError(
                f"'{subject}' is no directory of a run, but of several directories each has to be "
                "one; leave it out"
            )
        has_ended = (run_dir.path / SUMMARY).exists()
        summary = run_dir.read_json(SUMMARY) if has_ended else None
        shown.append(ShownRun(name, run_dir.read_config(), run_dir.read_metrics(), summary))
    return runs_page(shown, facts)


def _told_apart(subjects: Sequence[str]) -> list[str]:
    """Return short names of directories: the last parts of their paths that differ.

    Raises:
        InputError: If a directory is given twice.
    """
    parts = [Path(os.path.realpath(subject)).parts for subject in subjects]
    for number, own in enumerate(parts):
        if own in parts[:number]:
            raise InputError(f"run '{subjects[number]}' is given twice; leave one of them out")
    length = 1
    while len({own[-length:] for own in parts}) < len(parts):
        length += 1
    return ["/".join(own[-length:]) for own in parts]


def _page_of_study(folder: Path) -> str:
    from distgnn.pages.study import study_page
    from distgnn.training.loop.screened import with_confirmed
    from distgnn.training.run.directory import SUMMARY, RunDirectory

    if not (folder / SUMMARY).is_file():
        raise InputError(
            f"study '{folder}' has not ended; continue it with the command that began it and "
            "--resume"
        )
    summary = RunDirectory(folder).read_json(SUMMARY)
    curves: dict[str, list[tuple[float, float]]] = {}
    with _whole(folder / SUMMARY):
        for trial in summary["trials"]:
            records = with_confirmed(RunDirectory(folder / trial["run"]).read_metrics())
            curves[trial["run"]] = [
                (record["epoch"] + 1, record["val_metric"])
                for record in records
                if record["val_metric"] is not None
            ]
        return study_page(summary, curves)


@contextlib.contextmanager
def _whole(file: Path) -> Iterator[None]:
    """Say of a file whose values are taken here that it is damaged, if one is missing."""
    try:
        yield
    except InputError:
        raise
    except _LACKS as error:
        raise InputError(
            f"'{file}' is damaged: a value is missing or of another kind "
            f"({type(error).__name__}: {error}); restore it, or repeat the command that wrote it "
            "with --resume"
        ) from error


def _page_of_run(run_dir: RunDirectory) -> str:
    from distgnn.pages.run import run_page
    from distgnn.training.run.directory import SUMMARY

    has_ended = (run_dir.path / SUMMARY).exists()
    summary = run_dir.read_json(SUMMARY) if has_ended else None
    config = run_dir.read_config()
    predicted = None
    # A run outlives the partition that it was trained on, and its page does not need it.
    records = run_dir.read_metrics()
    with contextlib.suppress(InputError, KeyError, TypeError):
        predicted = _predicted(config, len(records))
    return run_page(config, records, summary, predicted=predicted)


def _predicted(config: dict[str, Any], num_epochs: int) -> float | None:
    """Bytes of an epoch, on average over those of the run, if its partition is still there."""
    from distgnn.forecast.traffic import forecast
    from distgnn.training.config.settings import TrainConfig

    directory = Path(config["source"]["source"])
    if not (directory / MANIFEST_NAME).is_file():
        return None
    manifest = read_manifest(directory)
    if manifest.fingerprint != config["partition"] or num_epochs == 0:
        return None
    found = forecast(directory, manifest, TrainConfig.from_json(config["train"]))
    return sum(found.bytes_in_epoch(epoch) for epoch in range(num_epochs)) / num_epochs


def _write(out: Path, text: str) -> int:
    """Write the file, whole or not at all; return its bytes."""
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    content = text.encode("utf-8", "xmlcharrefreplace")
    try:
        temporary.write_bytes(content)
        temporary.replace(out)
    except OSError as error:
        raise InputError(f"cannot write '{out}': {error.strerror}; choose another --out") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return len(content)
