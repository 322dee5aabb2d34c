"""Where and on what a benchmark ran."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import distgnn
from distgnn.bench import peers
from distgnn.machine import facts


def look() -> dict[str, Any]:
    """Collect what somebody needs who wants to repeat the run.

    Returns:
        JSON values: the command, the time, the commit, the load of the machine when it began, and
        versions of peers.
    """
    return {
        "command": shlex.join(["distgnn", *sys.argv[1:]]),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(Path(distgnn.__file__)),
        "load": round(os.getloadavg()[0], 1),
        "peers": peers.versions(),
    }


def write(what: str, values: dict[str, Any], out: str | None) -> dict[str, Any]:
    """Add to results what they were measured on, and write them where that is asked for.

    Args:
        what: Name of the benchmark.
        values: Its results, as JSON values.
        out: File to write; None for none.

    Returns:
        The results with `look` of this module and the facts of the machine.
    """
    values = {"what": what, **look(), "machine": facts.look(), **values}
    if out is not None:
        Path(out).write_text(json.dumps(values, indent=1) + "\n")
    return values


def commit(file: Path) -> str:
    """Name the state of the repository that a source file belongs to.

    Args:
        file: Tracked where there is a repository; an installed copy is not, even if its environment
            lies in somebody's repository.

    Returns:
        A short hash, "changed" behind it if files differ from the commit; the version of the
        package where there is no repository.
    """
    try:
        _git(file, "ls-files", "--error-unmatch", file.name)
        short = _git(file, "rev-parse", "--short=10", "HEAD")
        changes = _git(file, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return f"of version {distgnn.__version__}"
    return f"{short}, changed" if changes else short


def _git(file: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(file.parent), *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
