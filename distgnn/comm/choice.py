"""Which transport the ranks of a job take, and the MPI library that fits their launcher.

Importing this module imports neither torch nor mpi4py.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.datasets import InputError

if TYPE_CHECKING:
    from types import ModuleType

    from distgnn.comm.launch import Launch
    from distgnn.comm.rendezvous import Store
    from distgnn.comm.roster import Roster

# Vendors as mpi4py names them, and the launchers whose ranks they find.
_LAUNCHERS_OF = {
    "Open MPI": ("openmpi",),
    "MPICH": ("mpich", "intelmpi"),
    "Intel MPI": ("mpich", "intelmpi"),
}
MPI_LAUNCHERS = ("openmpi", "mpich", "intelmpi")
# On one host no MPI needs a network, and Open MPI and UCX would listen on every interface.
_LOCAL_SETTINGS = {
    "OMPI_MCA_btl": "^tcp,ofi,uct,openib",
    "UCX_TLS": "self,sm",
    "I_MPI_FABRICS": "shm",
}
# A rank of Open MPI that loses a peer over TCP would end at once, and mpirun the others with it:
# with fault tolerance the request fails, and there is time to say which rank died.
_TCP_SETTINGS = {
    "OMPI_MCA_mpi_ft_enable": "1",
    "OMPI_MCA_btl_base_warn_peer_error": "0",
}
# Their drivers have not been tried with fault tolerance, and Open MPI warns of some.
_FABRICS = (Path("/sys/class/infiniband"), Path("/sys/class/cxi"))


@dataclass(frozen=True)
class Choice:
    """A transport.

    Attributes:
        backend: Its name.
        reason: Why it was taken; empty if the user named it.
        mpi: mpi4py.MPI, initialised, if the transport is MPI.
    """

    backend: str
    reason: str = ""
    mpi: ModuleType | None = None


def choose_backend(
    requested: str,
    launch: Launch,
    store: Store,
    roll: Roster,
    *,
    interface: str | None,
    timeout_s: float,
) -> Choice:
    """Choose the transport, the same on every rank; collective.

    On one host MPI's sums and barriers are several times faster than gloo's, which cross the
    loopback interface; rows take about as long, through shared memory with both. Between hosts gloo
    fills an Ethernet link, computes beside it and needs no polling, so there MPI is the user's to
    ask for, who knows whether a faster fabric joins the hosts.

    Args:
        requested: "auto" or the name of a transport.
        launch: Who this rank is.
        store: Shared by all ranks.
        roll: Of the job; all have come.
        interface: The network interface that the user named, if any.
        timeout_s: Longest wait for a rank to load MPI.

    Raises:
        InputError: If MPI is requested and a rank cannot use it.
        PeerError: If a rank does not answer in time.
    """
    if requested in ("gloo", "nccl"):
        # Ranks that exchange by NCCL find each other, and agree, by gloo.
        return Choice("gloo")
    if requested == "auto":
        reason = _reason_against(launch, interface)
        if reason:
            return Choice("gloo", reason)
    try:
        mpi, problem = load_mpi(launch), ""
    except InputError as error:
        mpi, problem = None, str(error)
    # What keeps each rank from MPI.
    problems = roll.gather("mpi", problem, "say whether they can use MPI", timeout_s)
    worst = next((text for text in problems if text), "")
    if not worst:
        reason = "all ranks are on this host, and MPI works in its memory"
        return Choice("mpi", reason if requested == "auto" else "", mpi)
    if requested == "auto":
        return Choice("gloo", worst.partition(";")[0])
    from distgnn.comm.rendezvous import leave_store

    leave_store(store, launch.rank, launch.size)
    raise InputError(f"backend 'mpi' cannot be used: {worst}; or choose --backend gloo")


def check_device(requested: str, device: str) -> None:
    """Refuse a transport of devices that nothing is computed on.

    Args:
        requested: "auto" or the name of a transport.
        device: cpu or cuda.

    Raises:
        InputError: If NCCL is requested for the processor.
    """
    if requested == "nccl" and device == "cpu":
        raise InputError(
            "backend 'nccl' moves rows of CUDA devices, but this command computes on the cpu; add "
            "--device cuda where it is taken, or choose --backend gloo"
        )


def check_interface(requested: str, launch: Launch, interface: str | None) -> None:
    """Refuse a network interface that nothing would use.

    Between hosts the ranks of MPI still meet over it.

    Args:
        requested: "auto" or the name of a transport.
        launch: Who this rank is.
        interface: The network interface that the user named, if any.

    Raises:
        InputError: If MPI is requested for ranks of one host, and an interface too.
    """
    if requested == "mpi" and launch.is_local and interface is not None:
        raise InputError(
            f"backend 'mpi' uses no network interface between ranks of one host, got {interface!r};"
            " drop --interface or choose --backend gloo"
        )


def _reason_against(launch: Launch, interface: str | None) -> str:
    """Why MPI is not even tried; empty if it is."""
    if launch.kind not in MPI_LAUNCHERS:
        return f"{launch.kind} is no launcher of MPI"
    if not launch.is_local:
        return "the ranks are on several hosts (on InfiniBand try --backend mpi)"
    if interface is not None:
        return f"interface {interface} was asked for"
    return ""


def load_mpi(launch: Launch) -> ModuleType:
    """Load and initialise the MPI library, if it is the one that started this rank.

    A library under the mpirun of another one sees one rank alone and reports no error.

    Args:
        launch: Who this rank is.

    Returns:
        mpi4py.MPI.

    Raises:
        InputError: If there is no such library or it does not see all ranks.
    """
    try:
        mpi = import_mpi()
    except (ImportError, RuntimeError) as error:
        raise InputError(f"mpi4py cannot be loaded ({error}); install distgnn[mpi]") from error
    start_mpi(mpi, launch)
    return mpi


def import_mpi() -> ModuleType:
    """Return mpi4py.MPI, not initialised unless it was.

    Raises:
        ImportError: If mpi4py is not installed.
        RuntimeError: If it finds no MPI library.
    """
    if "mpi4py.MPI" not in sys.modules:
        import mpi4py

        # The library of another launcher had better not be started at all.
        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = True
    from mpi4py import MPI as mpi  # noqa: N811

    module: ModuleType = mpi
    return module


def start_mpi(mpi: ModuleType, launch: Launch) -> None:
    """Initialise MPI and check that it sees the ranks that the launcher started.

    Args:
        mpi: mpi4py.MPI.
        launch: Who this rank is.

    Raises:
        InputError: If it is not the launcher's.
    """
    vendor = str(mpi.get_vendor()[0])
    kinds = _LAUNCHERS_OF.get(vendor, MPI_LAUNCHERS)
    if launch.kind in MPI_LAUNCHERS and launch.kind not in kinds:
        raise InputError(
            f"the launcher is {launch.kind}, but mpi4py loads {vendor}; use the mpirun of that "
            "library, beside this Python's executable"
        )
    if not mpi.Is_initialized():
        for name, value in _settings(launch).items():
            os.environ.setdefault(name, value)
        mpi.Init_thread(mpi.THREAD_MULTIPLE)
    found = int(mpi.COMM_WORLD.size)
    if found != launch.size:
        raise InputError(
            f"the launcher started {launch.size} ranks, but the MPI library of mpi4py sees "
            f"{found}; use the mpirun of that library, beside this Python's executable"
        )


def _settings(launch: Launch) -> dict[str, str]:
    """Variables that MPI libraries read when they start; those of others are not looked at."""
    if launch.is_local:
        return _LOCAL_SETTINGS
    has_fabric = any(folder.is_dir() and any(folder.iterdir()) for folder in _FABRICS)
    return {} if has_fabric else _TCP_SETTINGS
