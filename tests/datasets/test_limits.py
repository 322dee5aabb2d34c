"""Limits of memory from control groups and the kernel, in both versions of their files."""

from __future__ import annotations

import pytest

from distgnn.datasets.limits import (
    available_by_pool,
    available_memory,
    free_memory,
    memory_limit,
    num_killed,
    total_memory,
)

KIB = 1024
V1, V2 = "9:memory:/job/step", "0::/job/step"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path):
    """A machine of 1000 KiB, 800 of them free, without limits."""
    write(tmp_path / "proc/meminfo", "MemTotal:  1000 kB\nMemFree: 7 kB\nMemAvailable: 800 kB\n")
    write(tmp_path / "proc/vmstat", "oom_kill_disable 9\noom_kill 0\n")
    write(tmp_path / "proc/self/cgroup", f"8:pids:/\n{V1}\n{V2}\n")
    return tmp_path


class GroupV2:
    limit, usage, kills = "memory.max", "memory.current", "memory.events"
    idle, active, shared = "inactive_file", "active_file", "shmem"
    base = "sys/fs/cgroup"


class GroupV1:
    limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
    kills = "memory.oom_control"
    idle, active, shared = "total_inactive_file", "total_active_file", "total_shmem"
    base = "sys/fs/cgroup/memory"


BOTH = pytest.mark.parametrize("kind", [GroupV1, GroupV2])


def test_a_machine_without_control_groups_gives_what_it_has_free(tmp_path):
    write(tmp_path / "proc/meminfo", "MemTotal:  1000 kB\nMemAvailable: 800 kB\n")
    assert (total_memory(tmp_path), free_memory(tmp_path)) == (1000 * KIB, 800 * KIB)
    assert available_memory(tmp_path) == 800 * KIB
    assert memory_limit(tmp_path) is None
    assert num_killed(tmp_path) == 0


@BOTH
@pytest.mark.parametrize("place", ["job/step", "job", ""])
def test_the_smallest_limit_around_the_process_counts(kind, place, machine):
    folder = machine / kind.base / place
    write(machine / kind.base / "job/step" / kind.limit, str(2**60))
    write(folder / kind.limit, f"{600 * KIB}\n")
    assert memory_limit(machine) == 600 * KIB
    assert available_memory(machine) == 600 * KIB
    write(folder / kind.usage, f"{500 * KIB}\n")
    assert available_memory(machine) == 100 * KIB
    write(folder / "memory.stat", f"anon 3\n{kind.idle} {400 * KIB}\n")
    assert available_memory(machine) == 500 * KIB
    write(folder / kind.usage, f"{5000 * KIB}\n")
    assert available_memory(machine) == 0


@BOTH
def test_files_that_were_read_more_than_once_do_not_count_as_taken(kind, machine):
    folder = machine / kind.base / "job/step"
    write(folder / kind.limit, f"{600 * KIB}\n")
    write(folder / kind.usage, f"{590 * KIB}\n")
    sizes = {kind.idle: 100, kind.active: 300, kind.shared: 50, "file": 450}
    lines = [f"{name} {size * KIB}\n" for name, size in sizes.items()]
    write(folder / "memory.stat", "".join(lines))
    assert available_memory(machine) == 410 * KIB


@BOTH
def test_each_limit_around_the_process_is_a_pool_of_its_own(kind, machine):
    places = {"job/step": 300, "job": 500, "": 2000}
    for place, size in places.items():
        write(machine / kind.base / place / kind.limit, f"{size * KIB}\n")
    pools = available_by_pool(machine)
    assert sorted(pools.values()) == [300 * KIB, 500 * KIB, 800 * KIB]
    assert pools.pop("machine") == 800 * KIB
    # A group that is its container's root is the same one that others see by its path.
    container = machine / "container"
    for file in ("proc/meminfo", "proc/self/cgroup"):
        write(container / file, (machine / file).read_text())
    seen = container / kind.base
    seen.parent.mkdir(parents=True)
    seen.symlink_to(machine / kind.base / "job/step")
    (name,) = (name for name, left in pools.items() if left == 300 * KIB)
    assert available_by_pool(container) == {"machine": 800 * KIB, name: 300 * KIB}


@BOTH
def test_a_group_that_is_not_mounted_is_seen_at_the_root(kind, machine):
    write(machine / kind.base / kind.limit, f"{300 * KIB}\n")
    assert available_memory(machine) == 300 * KIB


def test_a_limit_above_the_memory_or_none_at_all_is_no_limit(machine):
    write(machine / GroupV2.base / "job/step" / GroupV2.limit, "max\n")
    write(machine / GroupV1.base / "job/step" / GroupV1.limit, "9223372036854771712\n")
    assert memory_limit(machine) is None
    assert available_memory(machine) == 800 * KIB


@BOTH
def test_processes_that_the_kernel_ended_are_counted(kind, machine):
    folder = machine / kind.base / "job/step"
    write(folder / kind.kills, "low 0\noom 7\noom_kill 2\n")
    assert num_killed(machine) == 2
    write(machine / "proc/vmstat", "oom_kill 5\n")
    assert num_killed(machine) == 5


def test_this_machine_has_memory():
    assert 0 < available_memory() <= total_memory()
    assert num_killed() >= 0
