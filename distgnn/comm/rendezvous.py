"""Where the ranks of a job meet: a key-value store at rank 0 and the interface to it."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import stat
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.comm import network, process
from distgnn.comm.failure import PeerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch._C._distributed_c10d import PrefixStore as PrefixStore
    from torch._C._distributed_c10d import Store as Store
    from torch._C._distributed_c10d import TCPStore as TCPStore

    from distgnn.comm.launch import Launch
else:
    from torch.distributed import PrefixStore, TCPStore

_POLL_S = 0.02
_LAST_WAIT_S = 5.0


@dataclass
class Meeting:
    """The store the ranks of a job share.

    Attributes:
        store: This rank's client of it; rank 0 also serves it.
        address: Address of rank 0 that this rank uses.
        port: Port of the store.
        interface: Network interface that leads to rank 0.
        file: Where rank 0 of a local job published the port; None elsewhere.
        prefix: Of the keys of this attempt, in a store that outlives it; empty elsewhere.
    """

    store: Store
    address: str
    port: int
    interface: str
    file: Path | None = field(default=None)
    prefix: str = ""

    def client(self, timeout_s: float) -> Store:
        """Return another client, for another thread.

        Args:
            timeout_s: Longest wait of its calls.
        """
        return within(connect_store(self.address, self.port, timeout_s), self.prefix)

    def remove_file(self) -> None:
        """Remove the published port; every rank has connected."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)
            self.file = None


def meet(
    launch: Launch, environ: Mapping[str, str], *, interface: str | None, timeout_s: float
) -> Meeting:
    """Meet the other ranks of the job.

    Args:
        launch: Who this rank is.
        environ: The environment of this process.
        interface: Network interface to use; None takes the one that leads to rank 0.
        timeout_s: Longest wait for the other ranks.

    Raises:
        InputError: If the ranks are on several hosts and rank 0 has no known address.
        PeerError: If rank 0 does not appear in time.
    """
    is_given = launch.kind == "torchrun" and "TORCHELASTIC_RUN_ID" not in environ
    if launch.is_local and not is_given:
        meeting = _meet_locally(launch, environ, timeout_s)
        meeting.interface = interface or meeting.interface
        return meeting
    from distgnn.comm.remote import meet_remotely

    return meet_remotely(launch, environ, interface=interface, timeout_s=timeout_s)


def serve_store(listener: socket.socket, address: str, timeout_s: float) -> TCPStore:
    """Serve a store on a listening socket, so that it is reachable through that address only.

    Args:
        listener: Bound and listening; the store takes it over.
        address: How this process itself reaches it.
        timeout_s: Longest wait of the calls of this client.
    """
    port = listener.getsockname()[1]
    return TCPStore(
        address,
        port,
        None,
        True,
        timedelta(seconds=timeout_s),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def connect_store(address: str, port: int, timeout_s: float) -> TCPStore:
    """Return a client of the store at rank 0.

    Args:
        address: Address of rank 0.
        port: Port of the store.
        timeout_s: Longest wait for the connection and of its calls.
    """
    return TCPStore(
        address, port, None, False, timedelta(seconds=timeout_s), wait_for_workers=False
    )


def within(store: Store, prefix: str) -> Store:
    """Return the keys of a store that begin with a prefix, without it.

    Args:
        store: Any.
        prefix: Empty for the store itself.
    """
    return PrefixStore(prefix, store) if prefix else store


def leave_store(store: Store, rank: int, size: int) -> None:
    """Say that this rank needs the store no more; rank 0, which serves it, waits for all others.

    Args:
        store: Of the job.
        rank: This rank.
        size: Number of ranks.
    """
    if rank != 0:
        # Rank 0 may have been ended meanwhile, and then nobody waits for this.
        with suppress(RuntimeError):
            store.add("gone", 1)
        return
    deadline_s = time.monotonic() + _LAST_WAIT_S
    while store.add("gone", 0) < size - 1 and time.monotonic() < deadline_s:
        time.sleep(0.005)


def _meet_locally(launch: Launch, environ: Mapping[str, str], timeout_s: float) -> Meeting:
    file = private_directory(environ) / f"rendezvous-{job_key(launch, environ)}.json"
    loopback = network.loopback_interface()
    if launch.rank == 0:
        file.unlink(missing_ok=True)
        listener = socket.create_server(("127.0.0.1", 0), backlog=max(128, launch.size))
        port = int(listener.getsockname()[1])
        store = serve_store(listener, "127.0.0.1", timeout_s)
        token = secrets.token_hex(16)
        store.set("token", token)
        _publish(file, {"port": port, "token": token})
        return Meeting(store, "127.0.0.1", port, loopback, file)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = _read(file)
        if found is not None:
            store = connect_store("127.0.0.1", found[0], timeout_s)
            if store.check(["token"]) and store.get("token") == found[1].encode():
                return Meeting(store, "127.0.0.1", found[0], loopback)
        time.sleep(_POLL_S)
    raise PeerError(
        f"rank {launch.rank} waited {timeout_s:g} s on this machine for rank 0 to appear in "
        f"{file}; see the output of rank 0, or wait longer with --start-timeout"
    )


def private_directory(environ: Mapping[str, str]) -> Path:
    """Return a directory that only this user can write or read, made if need be.

    Args:
        environ: The environment of this process; the same for all ranks of the machine.

    Raises:
        PeerError: If every candidate belongs to somebody else or is open to others.
    """
    user = os.getuid()
    candidates = [Path(tempfile.gettempdir()) / f"distgnn-{user}"]
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime:
        candidates.insert(0, Path(runtime) / "distgnn")
    for candidate in candidates:
        try:
            candidate.mkdir(mode=0o700, exist_ok=True)
            info = candidate.lstat()
        except OSError:
            continue
        is_private = stat.S_ISDIR(info.st_mode) and stat.S_IMODE(info.st_mode) & 0o077 == 0
        if is_private and info.st_uid == user:
            return candidate
    raise PeerError(
        f"the ranks of this machine cannot meet, because {candidates[-1]} is not a directory that "
        "only this user can open; remove it or set XDG_RUNTIME_DIR to one"
    )


def job_key(launch: Launch, environ: Mapping[str, str]) -> str:
    """Return a name that is the same for the local ranks of this job and for no other job.

    Args:
        launch: Who this rank is.
        environ: The environment of this process.
    """
    names: tuple[str, ...] = ()
    if launch.kind == "torchrun":
        names = ("TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    elif launch.kind == "openmpi" and "PMIX_NAMESPACE" in environ:
        names = ("PMIX_NAMESPACE",)
    elif launch.kind == "srun":
        names = ("SLURM_JOB_ID", "SLURM_STEP_ID")
    identity = [launch.kind, str(launch.size), process.machine()]
    if names:
        identity += [environ.get(name, "") for name in names]
    else:
        parent = process.launcher_process()
        identity += [str(parent.pid), str(parent.start)]
    return hashlib.sha256("\n".join(identity).encode()).hexdigest()[:24]


def _publish(file: Path, content: dict[str, str | int]) -> None:
    me = process.this_process()
    text = json.dumps({**content, "pid": me.pid, "start": me.start, "machine": me.machine})
    temporary = file.with_suffix(f".{me.pid}.tmp")
    temporary.write_text(text, encoding="ascii")
    temporary.replace(file)


def _read(file: Path) -> tuple[int, str] | None:
    """Port and token of a rank 0 that is alive; a file left by a dead one does not count."""
    try:
        content = json.loads(file.read_text(encoding="ascii"))
        owner = process.ProcessId(content["machine"], content["pid"], content["start"])
        port, token = int(content["port"]), str(content["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_valid = owner.machine == process.machine() and process.is_alive(owner)
    return (port, token) if is_valid else None
