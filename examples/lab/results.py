"""Where the tables of these scripts are kept: sections of RESULTS.md, each with its origin."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEAD = """# What was measured in the lab
Written by the scripts of this folder, a section each; see README.md. Hosts are namespaces (network,
processes, files) of one machine, and their links are rate-limited.
"""


def origin() -> str:
    """Date, commit, machine and load."""
    git = ["git", "-C", str(HERE)]
    commit = _said([*git, "rev-parse", "--short=12", "HEAD"])
    # What is recorded here is no change of what was measured.
    changed = _said([*git, "status", "--porcelain", "--", ":/", ":!*.md"])
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    processor = found[1].strip() if found else "unknown processor"
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    now = datetime.now(timezone.utc)
    return (
        f"{now:%Y-%m-%d %H:%M} UTC, commit {commit}{'+' if changed else ''}, "
        f"{os.cpu_count()} cores of {processor}, load at the end {load}."
    )


def _said(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """A table in Markdown."""
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]


def record(title: str, lines: list[str], file: Path = HERE / "RESULTS.md") -> None:
    """Write a section, in place of an earlier one of the same title."""
    old = file.read_text() if file.exists() else HEAD
    head, *sections = re.split(r"^(?=## )", old, flags=re.MULTILINE)
    kept = [text for text in sections if not text.startswith(f"## {title}\n")]
    body = "\n".join([f"## {title}", origin(), "", *lines])
    new = file.with_suffix(".tmp")
    new.write_text(
        head.rstrip() + "\n\n" + "".join(f"{text.rstrip()}\n\n" for text in kept) + body + "\n"
    )
    new.replace(file)
    print(body)
