"""`distgnn report`."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.cli.flags import path
from distgnn.cli.inspect_verb import forecast_values, manifest_json
from distgnn.cli.output import add_json_flag, print_json, print_lines
from distgnn.cli.train_verb import add_epoch_flags, config_from
from distgnn.datasets.errors import InputError
from distgnn.partition.directory.store import MANIFEST_NAME, read_manifest

if TYPE_CHECKING:
    import argparse

    from distgnn.training.run.directory import RunDirectory

HELP = "write a page about a partition or a run: one HTML file that needs nothing else"
EPILOG = "The flags of the model are for partitions, as inspect takes them."
_SUFFIXES = (".html", ".htm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "subject", metavar="RUN_OR_DIR", type=path, help="directory of a run or of a partition"
    )
    parser.add_argument(
        "--out", type=path, required=True, metavar="FILE.html", help="page to write"
    )
    add_epoch_flags(parser)
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read the directory, write the page."""
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.run.directory import RunDirectory

    out = Path(arguments.out)
    if out.suffix not in _SUFFIXES:
        raise InputError(f"--out must end in {' or '.join(_SUFFIXES)}, got '{out}'")
    config = config_from(arguments)
    is_partition = (Path(arguments.subject) / MANIFEST_NAME).is_file()
    run_dir = RunDirectory(Path(arguments.subject))
    if is_partition:
        from distgnn.pages.partition import partition_page

        manifest = read_manifest(arguments.subject)
        values = forecast_values(arguments.subject, manifest, config)
        text = partition_page({**manifest_json(manifest), **values})
    elif run_dir.has_run():
        if config != TrainConfig():
            raise InputError(
                "flags of the model have no effect on a run, which has its own; leave them out"
            )
        text = _page_of_run(run_dir)
    else:
        _refuse_series(Path(arguments.subject))
        raise InputError(
            f"'{arguments.subject}' is neither a partition directory nor that of a run; give one"
        )
    size = _write(out, text)
    kind = "partition" if is_partition else "run"
    if arguments.json:
        print_json({"out": str(out), "kind": kind, "bytes": size})
    else:
        print_lines([f"wrote {out}: a page about {kind} {arguments.subject}"])
    return 0


def _refuse_series(folder: Path) -> None:
    """Name one of its runs instead."""
    from distgnn.training.run.directory import CONFIG
    from distgnn.training.run.series import FILE

    if (folder / FILE).is_file():
        runs = sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))
        one = f", such as '{runs[0]}'" if runs else ""
        raise InputError(f"'{folder}' holds a series, and a page is about one run; give one{one}")


def _page_of_run(run_dir: RunDirectory) -> str:
    from distgnn.pages.run import run_page
    from distgnn.training.run.directory import SUMMARY

    has_ended = (run_dir.path / SUMMARY).exists()
    summary = run_dir.read_json(SUMMARY) if has_ended else None
    config = run_dir.read_config()
    foretold = None
    # A run outlives the partition that it was trained on, and its page does not need it.
    records = run_dir.read_metrics()
    with contextlib.suppress(InputError, KeyError, TypeError):
        foretold = _foretold(config, len(records))
    return run_page(config, records, summary, foretold=foretold)


def _foretold(config: dict[str, Any], num_epochs: int) -> float | None:
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
    content = text.encode()
    try:
        temporary.write_bytes(content)
        temporary.replace(out)
    except OSError as error:
        raise InputError(f"cannot write '{out}': {error.strerror}; choose another --out") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return len(content)
