"""A rank of a real job: `rank_script.py MODE`, started by a launcher in test_gloo.py."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
from contract import run_contract

from distgnn.comm import PeerError, fail, open_group
from distgnn.comm.group import Group
from distgnn.datasets import InputError

SLOW_S = 7


def main(mode: str) -> int:
    group = open_group(timeout_s=SLOW_S - 1 if mode == "slow" else 60, stale_s=4)
    try:
        MODES[mode](group)
        group.close()
    except PeerError as error:
        sys.stderr.write(f"[{group.rank}] {error}\n")
        fail(group, error, exit_code=75)
    except InputError as error:
        sys.stderr.write(f"[{group.rank}] {error}\n")
        return 2
    except Exception as error:  # noqa: BLE001  (what the command line does)
        sys.stderr.write(f"[{group.rank}] own error: {error}\n")
        fail(group, error, exit_code=1)
    return 0


def contract(group: Group) -> None:
    run_contract(group)
    group.barrier()
    listening = [address for address in _listening_addresses() if address not in LOOPBACK]
    line = f"{group.rank}/{group.size} {group.launcher} {group.backend} {group.interface} ok"
    sys.stdout.write(f"{line} {listening}\n")


def loop(group: Group) -> None:
    """Exchange for a minute, or until told otherwise."""
    mode, victim = os.environ["FAULT"].split(":")
    group.set_checkpoint(3)
    row = torch.zeros(1000)
    for epoch in range(6000):
        group.note(epoch, "halo exchange")
        if epoch == 50 and group.rank == int(victim):
            FAULTS[mode]()
        peers = [peer for peer in range(group.size) if peer != group.rank]
        works = [group.irecv(torch.empty(1000), peer, 1) for peer in peers]
        works += [group.isend(row, peer, 1) for peer in peers]
        for work in works:
            work.wait()
        time.sleep(0.01)


def slow(group: Group) -> None:
    """Rank 0 works alone for longer than the ranks had to connect, and its heart beats."""
    row = torch.ones(2)
    if group.rank == 0:
        time.sleep(SLOW_S)
        group.isend(row, 1, 1).wait()
        time.sleep(SLOW_S)
    else:
        group.irecv(row, 0, 1).wait()
    group.all_reduce(row)
    sys.stdout.write(f"{group.rank} {row.tolist()}\n")


def agree(group: Group) -> None:
    group.agree(InputError("no file 'x'") if group.rank == 1 else None)


def _raise() -> None:
    raise ValueError("boom")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _listening_addresses() -> list[str]:
    """Addresses this process listens on, as the kernel writes them."""
    inodes = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.append(fields[1].partition(":")[0])
    assert group_listens(found)
    return found


def group_listens(found: list[str]) -> bool:
    """Whether the check sees anything at all: every gloo rank listens somewhere."""
    return len(found) > 0


LOOPBACK = ("0100007F", "00000000000000000000000001000000")
FAULTS = {"raise": _raise, "kill": _kill, "stop": _stop}
MODES = {"contract": contract, "loop": loop, "agree": agree, "slow": slow}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
