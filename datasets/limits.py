"""The memory that this process may have: of the machine, and of the control groups around it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path("/")


class _Files(NamedTuple):
    """Names of a control group's files: version 2, or version 1."""

    limit: str
    usage: str
    kills: str
    # Lines of memory.stat. Memory that processes share is a part of neither, nor is it to be had.
    reclaimable: tuple[str, ...]


_V2 = _Files("memory.max", "memory.current", "memory.events", ("inactive_file", "active_file"))
_V1 = _Files(
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "memory.oom_control",
    ("total_inactive_file", "total_active_file"),
)


def total_memory(root: Path = _ROOT) -> int:
    """Return the bytes of memory of this machine.

    Args:
        root: Where its file systems are mounted.
    """
    return _meminfo("MemTotal", root)


def free_memory(root: Path = _ROOT) -> int:
    """Return the bytes that the programs of this machine could still take.

    Args:
        root: Where its file systems are mounted.
    """
    return _meminfo("MemAvailable", root)


def memory_limit(root: Path = _ROOT) -> int | None:
    """Return the smallest limit of the control groups around this process, None without one.

    Args:
        root: Where the machine's file systems are mounted.
    """
    return min((limit for _, _, limit in _limited_groups(root)), default=None)


def available_memory(root: Path = _ROOT) -> int:
    """Return the bytes that this process could still take, by the system's own estimate.

    Args:
        root: Where the machine's file systems are mounted.
    """
    return min(available_by_pool(root).values())


def available_by_pool(root: Path = _ROOT) -> dict[str, int]:
    """Say what is left of each amount of memory that this process takes its own from.

    What a control group keeps of files that were read, once or often, is not counted as taken: the
    system drops it when memory is asked for.

    Args:
        root: Where the machine's file systems are mounted.

    Returns:
        Bytes by pool: the machine, and each limited control group around this process. A pool has
        the same name for all processes of the machine that take from it.
    """
    pools = {"machine": free_memory(root)}
    for folder, files, limit in _limited_groups(root):
        usage = _number(folder / files.usage) or 0
        kept = sum(_field(folder / "memory.stat", name) for name in files.reclaimable)
        # Not by its path, which is "/" in every container.
        about = folder.stat()
        name = f"control group {about.st_dev}:{about.st_ino}"
        pools[name] = max(limit - max(usage - kept, 0), 0)
    return pools


def num_killed(root: Path = _ROOT) -> int:
    """Return how many processes the kernel has ended here, ever, because memory was short.

    Args:
        root: Where the machine's file systems are mounted.
    """
    counts = [_field(root / "proc/vmstat", "oom_kill")]
    counts += [_field(folder / files.kills, "oom_kill") for folder, files in _groups(root)]
    return max(counts)


def _limited_groups(root: Path) -> Iterator[tuple[Path, _Files, int]]:
    total = total_memory(root)
    for folder, files in _groups(root):
        limit = _number(folder / files.limit)
        if limit is not None and limit < total:
            yield folder, files, limit


def _groups(root: Path) -> Iterator[tuple[Path, _Files]]:
    """Folders of the control groups around this process, the innermost first.

    A process in a container may see its own group as the root, or a path that is not mounted
    there: then the root is what there is.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    # hierarchy:controllers:path
    paths = {names: path for _, names, path in (line.split(":", 2) for line in lines)}
    mounted = root / "sys/fs/cgroup"
    memory = next((path for names, path in paths.items() if "memory" in names.split(",")), "/")
    for base, files, path in (
        (mounted, _V2, paths.get("", "/")),
        (mounted / "memory", _V1, memory),
    ):
        folder = base / path.lstrip("/")
        for group in (folder, *folder.parents):
            if group.is_dir():
                yield group, files
            if group == base:
                break


def _meminfo(field: str, root: Path) -> int:
    return 1024 * _field(root / "proc/meminfo", f"{field}:")


def _field(path: Path, name: str) -> int:
    """The number behind a name in a file of such lines; 0 where there is none."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    found = (line.split()[1] for line in lines if line.split()[:1] == [name])
    return int(next(found, "0"))


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
