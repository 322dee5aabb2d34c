"""`distgnn doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.cli.output import add_json_flag, human_bytes, pairs, print_json, print_lines

if TYPE_CHECKING:
    import argparse

HELP = "show what distgnn found on this machine, and what it would change"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Look at the machine and report, on rank 0 only if there are several."""
    from distgnn.cli.machine import advice, look
    from distgnn.comm.launch import detect

    found = look()
    remedies = advice(found)
    if detect().rank != 0:
        return 0
    if arguments.json:
        print_json({**found, "advice": remedies})
        return 0
    lines = pairs({name: _text(name, value) for name, value in found.items()})
    lines.append("")
    lines += [f"advice: {remedy}" for remedy in remedies] or ["nothing to change"]
    print_lines(lines)
    return 0


def _text(name: str, value: object) -> str:
    if value in (None, "", []):
        return "-"
    if name.endswith("_bytes") and isinstance(value, int):
        return human_bytes(value)
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {item or '-'}" for name, item in value.items())
    return str(value)
