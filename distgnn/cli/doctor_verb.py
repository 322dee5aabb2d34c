"""`distgnn doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.cli.flags import path
from distgnn.cli.output import add_json_flag, human_bytes, pairs, print_json, print_lines

if TYPE_CHECKING:
    import argparse

HELP = "show what distgnn found and measured on this machine, and what it would change"
EPILOG = (
    "Under mpirun, srun or torchrun it measures the links between the ranks too, and the memory "
    "of all of them at once: mpirun -n P distgnn doctor."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    from distgnn.cli.job import add_machine_arguments

    add_machine_arguments(parser)
    parser.add_argument(
        "--folder",
        type=path,
        default=".",
        metavar="FOLDER",
        help="where runs go: how fast it is written is measured (default: the current one)",
    )
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Look at the machine, measure it, and report on rank 0."""
    from distgnn.cli.job import job_from
    from distgnn.comm.launch import detect
    from distgnn.machine.trials import examine

    job = job_from(arguments)
    found = job.run(lambda group: examine(group, Path(arguments.folder), job.threads))
    if detect().rank > 0:
        return 0
    if arguments.json:
        print_json(found)
        return 0
    remedies = found.pop("advice")
    lines = pairs({name: _text(name, value) for name, value in _flat(found).items()})
    lines.append("")
    lines += [f"advice: {remedy}" for remedy in remedies] or ["nothing to change"]
    print_lines(lines)
    return 0


def _flat(found: dict[str, Any]) -> dict[str, Any]:
    links = found["links"] or {}
    flat = {name: value for name, value in found.items() if name != "links"}
    return {**flat, **{f"link_{name}": value for name, value in links.items()}}


def _text(name: str, value: Any) -> str:
    if value in (None, "", []):
        return "-"
    if name.endswith("_bytes_per_s"):
        speeds = value if isinstance(value, list) else [value]
        return ", ".join(f"{human_bytes(speed)}/s" for speed in speeds)
    if name.endswith("latency_s") and isinstance(value, list):
        return ", ".join(f"{latency * 1e6:.0f} us" for latency in value)
    if name.endswith("_bytes") and isinstance(value, int):
        return human_bytes(value)
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {item or '-'}" for name, item in value.items())
    return str(value)
