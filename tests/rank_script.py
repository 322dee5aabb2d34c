"""A rank of a real job: `rank_script.py MODE`, started by a launcher; see jobs.py."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from group_contract import run_contract

import distgnn.comm.open
import distgnn.comm.transports.mpi
from distgnn.comm import PeerError, detect, fail, open_group, process, watchdog
from distgnn.comm.group import Group, ReduceOp, combine
from distgnn.comm.open import on_device
from distgnn.comm.transports import lanes as lanes_module
from distgnn.comm.transports.gloo import GlooGroup
from distgnn.datasets import InputError

SLOW_S = 7


def main(mode: str) -> int:
    backend = os.environ.get("BACKEND", "gloo")
    if os.environ.get("APART"):  # as if each on a machine of its own
        os.environ.update(OMPI_COMM_WORLD_LOCAL_SIZE="1", OMPI_COMM_WORLD_LOCAL_RANK="0")
        process.machine = lambda: f"machine {detect().rank}"
    if mode == "managed":
        _manage_mpi()
    try:
        if mode == "slow":
            distgnn.comm.open._CONNECT_S = SLOW_S - 1  # type: ignore[misc]
        # A rank that is stopped is missed soon; on a busy machine one that lives is late, too.
        stale_s = 4 if os.environ.get("FAULT", "").startswith("stop") else 25
        has_lanes = os.environ.get("LANES") != "off"
        if os.environ.get("FAR") == str(detect().rank):  # as if on another machine
            lanes_module.process = SimpleNamespace(machine=lambda: "far")  # type: ignore[assignment]
        if os.environ.get("SMALL"):
            lanes_module.MAX_LANE_BYTES = 1 << 16  # type: ignore[misc]
            lanes_module._FILE_BYTES = 1 << 20  # type: ignore[misc]
        group = open_group(backend=backend, timeout_s=60, stale_s=stale_s, has_lanes=has_lanes)
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if mode == "uncaught" and group.rank == 1:
        raise ValueError("boom")
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
    listening = _listening_addresses()
    assert listening or group.backend == "mpi"  # the check sees something: gloo listens somewhere
    listening = [address for address in listening if address not in LOOPBACK]
    line = f"{group.rank}/{group.size} {group.launcher} {group.backend} {group.interface} ok"
    sys.stdout.write(f"{line} {listening}\n")


def nccl(group: Group) -> None:
    """Messages, sums and broadcasts between devices, and the contract beside them."""
    device = torch.device("cuda", group.local_rank)
    torch.cuda.set_device(device)
    group = on_device(group, device, "nccl")
    run_contract(group)
    own = torch.full((1000, 3), float(group.rank), device=device)
    peers = [peer for peer in range(group.size) if peer != group.rank]
    received = {(tag, peer): torch.zeros_like(own) for tag in range(3) for peer in peers}
    works = []
    for tag in range(3):
        incoming = [(received[tag, peer], peer) for peer in peers]
        works += group.transfer(incoming, [(own + 10 * tag, peer) for peer in peers], tag)
    for work in works:
        work.wait()
    for (tag, peer), tensor in received.items():
        assert bool((tensor == peer + 10 * tag).all())
    total, first = own.clone(), own.clone()
    group.all_reduce(total)
    group.broadcast(first, root=1)
    assert bool((total == sum(range(group.size))).all())
    assert bool((first == 1).all())
    sys.stdout.write("nccl done\n")


def pieces(group: Group) -> None:
    """The contract, with messages of many pieces each, and one that is larger than MPI's own."""
    distgnn.comm.transports.mpi.MAX_MESSAGE_BYTES = 9  # type: ignore[misc]
    run_contract(group)
    sys.stdout.write("ok\n")


def sums(group: Group) -> None:
    """Reductions have the bits of one process that adds up in rank order."""
    generator = torch.Generator().manual_seed(group.rank)
    ops: tuple[ReduceOp, ...] = ("sum", "max", "min")
    for length in (1, 5, 4095, 4097, 100_001):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.int64):
            rows = torch.randn(length, generator=generator).mul(1e3).to(dtype)
            for op in ops:
                expected = combine(group.all_gather(rows), op)
                reduced = rows.clone()
                group.all_reduce(reduced, op)
                assert torch.equal(reduced, expected), (length, dtype, op)
    sys.stdout.write("ok\n")


def sizes(group: Group) -> None:
    """A message that is shorter or longer than its receive is noticed."""
    sentences = {
        9: "rank 1 sent 36 bytes, but rank 0 expected 40 when it waited for rank 1 to send tag 5",
        11: "rank 0 got more bytes than it expected when it waited for rank 1 to send tag 5",
    }
    for length, sentence in sentences.items():
        if group.rank == 1:
            group.isend(torch.zeros(length), 0, 5).wait()
            continue
        if group.backend == "gloo":
            sentence = f"rank 1 sent {4 * length} bytes, but rank 0 expected 40"
        with pytest.raises(RuntimeError, match=sentence):
            group.irecv(torch.zeros(10), 1, 5).wait()
    sys.stdout.write("ok\n")


def overlap(group: Group) -> None:
    """A message arrives while nobody waits for it."""
    other = 1 - group.rank
    received = torch.zeros(1 << 20)
    works = [group.irecv(received, other, 1), group.isend(torch.ones(1 << 20), other, 1)]
    deadline_s = time.monotonic() + 100
    while received.min() == 0 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert received.min() == 1
    for work in works:
        work.wait()
    sys.stdout.write("ok\n")


def lanes(group: Group) -> None:
    """The contract, over the lanes that are expected; a message that fits none goes round them."""
    assert isinstance(group, GlooGroup)
    near = {int(rank) for rank in os.environ["NEAR"].split(",")} if os.environ["NEAR"] else set()
    found = set() if group._lanes is None else set(group._lanes.inboxes)
    assert found == (near - {group.rank} if group.rank in near else set()), found
    lanes.MAX_LANE_BYTES = 19  # type: ignore[misc]
    run_contract(group)
    sys.stdout.write("ok\n")


def flood(group: Group) -> None:
    """More messages than there are slots go on their way before their reader asks for one."""
    number = 3000
    if group.rank == 0:
        for value in range(number):
            group.isend(torch.tensor([value]), 1, value % 2).wait()
    else:
        time.sleep(0.5)
        for value in range(number):
            received = torch.zeros(1, dtype=torch.int64)
            group.irecv(received, 0, value % 2).wait()
            assert received.item() == value
    sys.stdout.write("ok\n")


def posts(group: Group) -> None:
    """All post more than the first file has slots or memory for, and wait only then."""
    number, peers = 1500, [rank for rank in range(group.size) if rank != group.rank]
    for is_reversed in (True, False):
        works, received = [], {}
        for value in range(number):
            for peer in peers:
                received[peer, value] = torch.zeros(1 + value % 700)
                works.append(group.irecv(received[peer, value], peer, value % 3))
                sent = torch.full((1 + value % 700,), float(value + group.rank))
                works.append(group.isend(sent, peer, value % 3))
        group.barrier()  # nor does a verb of all ranks wait for messages
        for work in reversed(works) if is_reversed else works:
            work.wait()
        for (peer, value), row in received.items():
            assert row.eq(value + peer).all(), (peer, value, row)
    sys.stdout.write("ok\n")


def leave(group: Group) -> None:
    """Rank 1 ends in order, but much too early."""
    if group.rank == 1:
        distgnn.comm.transports.mpi._LEAVE_S = 0.5  # type: ignore[misc]
        watchdog._DIAGNOSIS_S = 0.5  # type: ignore[misc]
        sys.exit(3)
    loop(group)


def notified(group: Group) -> None:
    """Hydra's signal to the ranks that end later than the first ends none of them."""
    group.close()
    os.kill(os.getpid(), signal.SIGUSR1)
    sys.stdout.write("ok\n")


def stand(group: Group) -> None:
    """Rank 1 stops when all have closed the group, before MPI ends."""
    distgnn.comm.transports.mpi._STOPPED_S = 1.0  # type: ignore[misc]
    # No terminal writes a line that is not over, and the end of a script flushes what was said.
    atexit.register(sys.stdout.write, f"{group.rank} done")
    group.close()
    if group.rank == 1:
        _stop()


def halt(group: Group) -> None:
    """Rank 1 stops while all leave the group, which some calls of MPI do together."""
    distgnn.comm.transports.mpi._STOPPED_S = 1.0  # type: ignore[misc]
    atexit.register(sys.stdout.write, f"{group.rank} done")
    if group.rank == 1:
        group._communicators = [SimpleNamespace(Free=_stop)]  # type: ignore[attr-defined]
    group.close()


def _manage_mpi() -> None:
    """Start MPI as a script does that uses it after its last group, and finalizes it itself."""
    import mpi4py

    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    from mpi4py import MPI

    MPI.Init_thread()

    def end() -> None:
        sys.stdout.write("finalized\n" if MPI.Is_finalized() else "ok\n")
        if not MPI.Is_finalized():
            MPI.Finalize()

    atexit.register(end)


def linger(group: Group) -> None:
    """Rank 1 has work of its own when all have closed the group."""
    distgnn.comm.transports.mpi._STOPPED_S = 0.2  # type: ignore[misc]
    group.close()
    if group.rank == 1:
        time.sleep(3)
    sys.stdout.write("ok\n")


def interrupted(group: Group) -> None:
    """Rank 0 is interrupted while MPI_Finalize waits for rank 1."""
    main_thread = threading.get_ident()

    def interrupt() -> None:
        frame, names = None, set[str]()
        while "finalize_mpi" not in names:
            frame = sys._current_frames()[main_thread]
            names = set()
            while frame is not None:
                names.add(frame.f_code.co_name)
                frame = frame.f_back
        os.kill(os.getpid(), signal.SIGINT)

    if group.rank == 0:
        threading.Thread(target=interrupt, daemon=True).start()
    linger(group)


def choice(group: Group) -> None:
    sys.stdout.write(f"{group.backend}: {group.reason}\n")


def loop(group: Group) -> None:
    """Exchange for a minute, or until told otherwise."""
    mode, victim = (os.environ["FAULT"] or ":-1").split(":")
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


def _sockets() -> set[str]:
    inodes = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    return inodes


def _listening_addresses() -> list[str]:
    """Addresses this process listens on, as the kernel writes them; not those of its launcher."""
    inodes = _sockets() - INHERITED
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.append(fields[1].partition(":")[0])
    return found


INHERITED = _sockets()
LOOPBACK = ("0100007F", "00000000000000000000000001000000")
FAULTS = {"raise": _raise, "kill": _kill, "stop": _stop}
MODES = {
    "contract": contract,
    "loop": loop,
    "uncaught": loop,
    "agree": agree,
    "slow": slow,
    "pieces": pieces,
    "sums": sums,
    "sizes": sizes,
    "overlap": overlap,
    "lanes": lanes,
    "flood": flood,
    "posts": posts,
    "leave": leave,
    "stand": stand,
    "halt": halt,
    "linger": linger,
    "interrupted": interrupted,
    "managed": choice,
    "choice": choice,
    "nccl": nccl,
    "notified": notified,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
