"""The meeting of the ranks of a job with rank 0, through a file or at an address."""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import secrets
import socket
import stat
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.comm import network, process
from distgnn.comm.errors import PeerError
from distgnn.comm.launch import expand_nodes
from distgnn.comm.mpi_library import import_mpi, late_start, start_mpi
from distgnn.comm.secret import secret_of_job
from distgnn.comm.store import (
    Meeting,
    SecretError,
    ServedStore,
    Store,
    connect_store,
    listen,
    serve_store,
)
from distgnn.datasets import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    from distgnn.comm.launch import Launch
    from distgnn.comm.roster import Roster

_POLL_S = 0.02
_DEFAULT_PORT = 29500
_TRY_S = 2.0
_AGAIN_S = 0.5


def meet(
    launch: Launch,
    environ: Mapping[str, str],
    *,
    interface: str | None,
    timeout_s: float,
    number: int = 0,
) -> Meeting:
    """Meet the other ranks of the job.

    Args:
        launch: Place of this rank in the job.
        environ: The environment of this process.
        interface: Network interface for the addresses of rank 0 under mpirun; None takes any.
        timeout_s: Longest wait for the other ranks.
        number: Meetings of this program before, the same on all ranks. The store of the last one
            may still be there.

    Raises:
        InputError: If the ranks are on several hosts and rank 0 has no known address.
        PeerError: If rank 0 does not appear in time.
    """
    # Who sets torchrun's variables by hand has chosen an address; everybody else on one machine
    # meets in a file, which needs no port, and which no other user can read.
    is_given = launch.kind == "torchrun" and "TORCHELASTIC_RUN_ID" not in environ
    if launch.is_local and not is_given:
        return _meet_locally(launch, environ, timeout_s)
    return meet_remotely(launch, environ, interface=interface, timeout_s=timeout_s, number=number)


def meets_without_help(launch: Launch, environ: Mapping[str, str]) -> bool:
    """Whether ranks can meet without mpi4py and torch, which take seconds to load.

    Args:
        launch: Place of this rank in the job.
        environ: The environment of this process.
    """
    if launch.is_local:
        return True
    has_address = launch.kind in ("torchrun", "srun") or "MASTER_ADDR" in environ
    return has_address and environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"


def _meet_locally(launch: Launch, environ: Mapping[str, str], timeout_s: float) -> Meeting:
    file = private_directory(environ) / f"rendezvous-{job_key(launch, environ)}.json"
    loopback = network.loopback_interface()
    if launch.rank == 0:
        file.unlink(missing_ok=True)
        _clean(file.parent)
        listener = socket.create_server(("127.0.0.1", 0), backlog=max(128, launch.size))
        port = int(listener.getsockname()[1])
        # A file of an earlier job may name a port that now belongs to somebody else. The secret is
        # in the file, so that a rank knows its own store when it reaches one.
        secret = secrets.token_hex(32)
        store = serve_store(listener, "127.0.0.1", timeout_s, secret.encode())
        try:
            _publish(file, {"port": port, "token": secret})
        except InputError:
            store.close()
            raise
        return Meeting(store, "127.0.0.1", port, loopback, secret.encode(), file)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = _read(file)
        if found is not None:
            with suppress(RuntimeError):
                client = connect_store("127.0.0.1", found[0], timeout_s, found[1].encode())
                return Meeting(client, "127.0.0.1", found[0], loopback, found[1].encode())
        time.sleep(_POLL_S)
    raise PeerError(
        f"rank {launch.rank} waited {timeout_s:g} s on this machine for rank 0 to appear in "
        f"{file}; see the output of rank 0, or wait longer with --start-timeout"
    )


def _clean(folder: Path) -> None:
    """Remove the files of jobs that were killed, which nobody else would."""
    for left in [*folder.glob("rendezvous-*.json"), *folder.glob("rendezvous-*.tmp")]:
        try:
            content = json.loads(left.read_text(encoding="ascii"))
            owner = process.ProcessId(content["machine"], content["pid"], content["start"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # half written, perhaps just now
        # A process of another container may use the same folder, and cannot be looked at.
        if owner.machine == process.machine() and not process.is_alive(owner):
            left.unlink(missing_ok=True)


def private_directory(environ: Mapping[str, str]) -> Path:
    """Return a directory that only this user can write or read, made if need be.

    Args:
        environ: The environment of this process; the same for all ranks of the machine.

    Raises:
        InputError: If every candidate belongs to somebody else or is open to others.
    """
    user, last = os.getuid(), ""
    for candidate in _private_candidates(environ):
        last = f"{candidate} is not a directory that only this user can open; remove it or set"
        try:
            candidate.mkdir(mode=0o700, exist_ok=True)
            info = candidate.lstat()
        except OSError:
            continue
        is_private = stat.S_ISDIR(info.st_mode) and stat.S_IMODE(info.st_mode) & 0o077 == 0
        if is_private and info.st_uid == user:
            return candidate
    last = last or "no temporary directory can be written; make room there, or set"
    raise InputError(
        f"the ranks of this machine cannot meet, because {last} XDG_RUNTIME_DIR to a directory of "
        "this user alone"
    )


def _private_candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("XDG_RUNTIME_DIR"):
        yield Path(environ["XDG_RUNTIME_DIR"]) / "distgnn"
    # None is found where none can be written.
    with suppress(FileNotFoundError):
        yield Path(tempfile.gettempdir()) / f"distgnn-{os.getuid()}"


def job_key(launch: Launch, environ: Mapping[str, str]) -> str:
    """Return a name that is the same for the local ranks of this job and for no other job.

    Args:
        launch: Place of this rank in the job.
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
    # By a new name first: nobody may read half a file.
    temporary = file.with_suffix(f".{me.pid}.tmp")
    try:
        temporary.write_text(text, encoding="ascii")
        temporary.replace(file)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise InputError(
            f"rank 0 cannot write '{file}', by which the ranks of this machine meet "
            f"({error.strerror}); free space there, or set XDG_RUNTIME_DIR to another folder"
        ) from error


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


def meet_remotely(
    launch: Launch,
    environ: Mapping[str, str],
    *,
    interface: str | None,
    timeout_s: float,
    number: int = 0,
) -> Meeting:
    """Meet the other ranks of a job on several machines.

    Args:
        launch: Place of this rank in the job.
        environ: The environment of this process.
        interface: Network interface for the addresses of rank 0 under mpirun; None takes any.
        timeout_s: Longest wait for the other ranks.
        number: Meetings of this program before.

    Raises:
        InputError: If rank 0 has no known address or none that every rank can reach.
        PeerError: If rank 0 does not appear in time.
    """
    store: Store
    known = master_address(launch, environ)
    if known is None:
        # MPI waits without end for a host that it cannot reach.
        with process.limited(timeout_s, late_start(launch, timeout_s)):
            mpi = _load_mpi(launch)
            try:
                served, address, port, secret = _agree_through_mpi(
                    mpi, launch, interface, timeout_s
                )
            except mpi.Exception as error:
                reason = str(error).partition("\n")[0]
                raise PeerError(
                    f"rank {launch.rank} ({socket.gethostname()}) lost another rank, or the link "
                    f"to it, before the ranks had met ({reason}); see the output of the others, "
                    "and start the job again"
                ) from error
        store = _connect(address, port, secret, timeout_s) if served is None else served
        return Meeting(store, address, port, "", secret)
    secret = secret_of_job(environ, launch.kind)
    if number:
        # What is left of the meeting before does not know it.
        secret = hmac.new(secret, str(number).encode(), "sha256").digest()
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # The agents' store outlives an attempt, whose keys are not those of the next one.
        attempt = environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        key = f"distgnn/attempt-{attempt}/store-{number}"
        store, address, port = _meet_through_agent(launch, key, known, secret, timeout_s)
    elif launch.rank == 0:
        store, address, port = _serve(launch, *known, secret, timeout_s)
    else:
        host = "127.0.0.1" if launch.is_local else known[0]
        again_s = timeout_s if number else 0.0
        store, address = _find(host, known[1], launch.rank, secret, timeout_s, again_s)
        port = known[1]
    return Meeting(store, address, port, "", secret)


def _find(
    host: str, port: int, rank: int, secret: bytes, timeout_s: float, again_s: float
) -> tuple[Store, str]:
    """Connect to the store at a port that is known; the one of the last meeting may be there yet.

    Args:
        host: Host of rank 0.
        port: Port of the store.
        rank: This rank.
        secret: Secret of the meeting.
        timeout_s: Longest wait for rank 0.
        again_s: Time in which another store there is left alone.
    """
    deadline_s = time.monotonic() + again_s
    while True:
        address = reach(host, port, rank=rank, timeout_s=timeout_s)
        try:
            return _connect(address, port, secret, timeout_s), address
        except (InputError, PeerError):
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_AGAIN_S)


def _connect(address: str, port: int, secret: bytes, timeout_s: float) -> Store:
    try:
        try:
            return connect_store(address, port, timeout_s, secret)
        except SecretError:
            # Rank 0 may have been killed just now: then nobody answers the second time.
            time.sleep(_AGAIN_S)
            return connect_store(address, port, timeout_s, secret)
    except SecretError as error:
        raise InputError(
            f"{error}: it is another job's or another user's, or this host has another secret of "
            "the user; choose another MASTER_PORT, or set DISTGNN_SECRET to one secret text on all "
            "hosts"
        ) from error
    except RuntimeError as error:
        what = "did not answer" if isinstance(error.__cause__, TimeoutError) else "ended"
        raise PeerError(f"rank 0 {what} before the ranks had met ({error})") from error


def _meet_through_agent(
    launch: Launch, key: str, known: tuple[str, int], secret: bytes, timeout_s: float
) -> tuple[Store, str, int]:
    """Learn from the store of torchrun's agents where rank 0 serves ours, which asks for proofs."""
    from datetime import timedelta

    from torch._C._distributed_c10d import TCPStore

    address = reach(*known, rank=launch.rank, timeout_s=timeout_s)
    wait = timedelta(seconds=timeout_s)
    with _reaching_agents(launch, address, known[1]):
        agents = TCPStore(address, known[1], None, False, wait, wait_for_workers=False)
    if launch.rank == 0:
        listener = listen("", 0, launch.size)
        port = int(listener.getsockname()[1])
        own = [found for _, found in network.addresses() if not network.is_loopback(found)]
        store = serve_store(listener, "127.0.0.1", timeout_s, secret)
        with _reaching_agents(launch, address, known[1]):
            agents.set(key, json.dumps({"port": port, "addresses": [*own, address]}))
        return store, (own or [address])[0], port
    try:
        offer = json.loads(agents.get(key))
    except RuntimeError as error:
        raise PeerError(
            f"rank {launch.rank} ({socket.gethostname()}) waited {timeout_s:g} s for rank 0 to "
            "say where it is; see the output of rank 0, or wait longer with --start-timeout"
        ) from error
    for candidate in offer["addresses"]:
        if _answers(candidate, offer["port"]):
            with suppress(SecretError):  # another machine may have that address too
                client = connect_store(candidate, offer["port"], timeout_s, secret)
                return client, candidate, offer["port"]
    return _connect(address, offer["port"], secret, timeout_s), address, offer["port"]


@contextmanager
def _reaching_agents(launch: Launch, address: str, port: int) -> Iterator[None]:
    """Say where torchrun's first agent was where its store does not answer in the block."""
    try:
        yield
    except RuntimeError as error:
        raise PeerError(
            f"rank {launch.rank} ({socket.gethostname()}) lost torchrun's agent at {address} port "
            f"{port}; see its output"
        ) from error


def master_address(launch: Launch, environ: Mapping[str, str]) -> tuple[str, int] | None:
    """Return host and port of rank 0, as far as the environment tells.

    Args:
        launch: Place of this rank in the job.
        environ: The environment of this process.

    Returns:
        None under mpirun without MASTER_ADDR.

    Raises:
        InputError: If MASTER_PORT is no port.
    """
    text = environ.get("MASTER_PORT", str(_DEFAULT_PORT))
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise InputError(
            f"MASTER_PORT must be a port in 1..65535, got {text!r}; unset or change it"
        )
    if "MASTER_ADDR" in environ:
        return environ["MASTER_ADDR"], int(text)
    if launch.kind == "torchrun":
        raise InputError(
            "MASTER_ADDR is not set, but RANK and WORLD_SIZE are, so it must name the host of "
            "rank 0; start through torchrun or set it"
        )
    if launch.kind != "srun":
        return None
    host = expand_nodes(environ.get("SLURM_STEP_NODELIST", ""))[0]
    if "MASTER_PORT" in environ:
        return host, int(text)
    job, step = (int(environ.get(name, "0")) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    # Below the ports that the kernel gives to outgoing connections.
    return host, 20000 + (job * 64 + step) % 12000


def reach(host: str, port: int, *, rank: int, timeout_s: float) -> str:
    """Wait until the store of rank 0 accepts connections.

    Args:
        host: Host of rank 0.
        port: Port of the store.
        rank: This rank, for the message.
        timeout_s: Longest wait.

    Returns:
        The address that answered.

    Raises:
        PeerError: If none answers in time.
    """
    deadline = time.monotonic() + timeout_s
    reason = ""
    while True:
        try:
            with socket.create_connection((host, port), timeout=_TRY_S) as connection:
                return str(connection.getpeername()[0])
        except OSError as error:
            reason = str(error)
        except UnicodeError as error:
            raise InputError(
                f"MASTER_ADDR must be the name or address of the host of rank 0, got {host!r} "
                f"({error}); correct it"
            ) from error
        if time.monotonic() > deadline:
            raise PeerError(
                f"rank {rank} ({socket.gethostname()}) waited {timeout_s:g} s for rank 0 at "
                f"{host} port {port} ({reason}); see the output of rank 0, let nothing block this "
                "port, or wait longer with --start-timeout"
            )
        time.sleep(0.1)


def _serve(
    launch: Launch, host: str, port: int, secret: bytes, timeout_s: float
) -> tuple[ServedStore, str, int]:
    for place in _places(launch, host, port):
        try:
            listener = listen(place, port, launch.size)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:  # the address of a router or service
                continue
            raise InputError(
                f"rank 0 cannot listen on {place or 'any address'} port {port} ({error.strerror}); "
                "set MASTER_PORT to a free port"
            ) from error
        reached = place or "127.0.0.1"
        return serve_store(listener, reached, timeout_s, secret), reached, port
    raise AssertionError("listening on any address needs no address")


def _places(launch: Launch, host: str, port: int) -> list[str]:
    """Return the addresses to listen on, from the best on; no wider than the ranks need."""
    if launch.is_local:
        return ["127.0.0.1"]
    try:
        address = str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:  # the latter for a name that cannot be one
        raise InputError(
            f"the host of rank 0 must have an address, got {host!r} ({error}); correct MASTER_ADDR"
        ) from error
    if not network.is_loopback(address):
        return [address, ""]
    # A hosts file may map the own name to loopback, which the other machines cannot reach. Who
    # writes loopback itself has no others.
    return [address] if host in ("localhost", address) else ["", address]


def common_interface(meeting: Meeting, roster: Roster, timeout_s: float) -> str:
    """Find the interface of this rank that leads to an address of rank 0 that is not loopback.

    Collective.

    Args:
        meeting: Store of the job, as this rank reaches it.
        roster: Roster of the job; all ranks have come.
        timeout_s: Longest wait.

    Returns:
        Its name; empty if it is not known.

    Raises:
        PeerError: If a rank does not answer in time.
    """
    what = "say how they reach rank 0"
    reached = roster.gather("reached", meeting.address, what, timeout_s)[1:]
    public = [address for address in reached if not network.is_loopback(address)]
    return network.interface_towards((public or reached)[0])


def _agree_through_mpi(
    mpi: ModuleType, launch: Launch, interface: str | None, timeout_s: float
) -> tuple[Store | None, str, int, bytes]:
    """Agree on an address of rank 0; collective.

    Returns:
        The store on rank 0, which serves it there, else None; its address, port and secret.
    """
    # Rank 0 offers all its addresses, every rank tries each of them, and the first that all ranks
    # reached is taken: the name of its host may mean another network elsewhere.
    with listen("", 0, launch.size) as probe:  # only answers, and only until an address is chosen
        offered = [
            address
            for name, address in network.addresses()
            if not network.is_loopback(address) and interface in (None, name)
        ]
        offer: dict[str, Any] = {"port": int(probe.getsockname()[1]), "addresses": offered}
        offer = _broadcast_json(mpi, offer)
        offered = offer["addresses"]
        answers = [_answers(address, offer["port"]) for address in offered]
        reached = np.array(answers, dtype=np.int32)
        mpi.COMM_WORLD.Allreduce(mpi.IN_PLACE, reached, op=mpi.MIN)
    if not reached.any():
        raise InputError(
            f"no address of rank 0 ({', '.join(offered) or 'none'}) can be reached from every "
            "rank; set MASTER_ADDR to one that can or name another network interface"
        )
    address = str(offered[int(np.flatnonzero(reached)[0])])
    if launch.rank == 0:
        listener = listen(address, 0, launch.size)
        port = int(listener.getsockname()[1])
        secret = secrets.token_hex(32)
        store = serve_store(listener, address, timeout_s, secret.encode())
        _broadcast_json(mpi, {"port": port, "secret": secret})
        return store, address, port, secret.encode()
    found = _broadcast_json(mpi, {})
    port, known = int(found["port"]), str(found["secret"]).encode()
    return None, address, port, known


def _broadcast_json(mpi: ModuleType, content: dict[str, Any]) -> dict[str, Any]:
    """Return what rank 0 passed; the lower-case verbs of mpi4py would unpickle it."""
    data = json.dumps(content).encode()
    length = np.array([len(data)], dtype=np.int64)
    mpi.COMM_WORLD.Bcast(length, root=0)
    text = np.zeros(int(length[0]), dtype=np.uint8)
    if mpi.COMM_WORLD.rank == 0:
        text[:] = np.frombuffer(data, dtype=np.uint8)
    mpi.COMM_WORLD.Bcast(text, root=0)
    received: dict[str, Any] = json.loads(text.tobytes())
    return received


def _load_mpi(launch: Launch) -> ModuleType:
    try:
        mpi = import_mpi()
    except (ImportError, RuntimeError) as error:
        raise InputError(
            f"{launch.size} ranks on several hosts do not know where rank 0 is ({error}); install "
            "distgnn[mpi], or set MASTER_ADDR to the host of rank 0 (Open MPI passes it on with "
            "mpirun -x MASTER_ADDR)"
        ) from error
    start_mpi(mpi, launch)
    return mpi


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=_TRY_S).close()
    except OSError:
        return False
    return True
