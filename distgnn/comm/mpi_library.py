"""The MPI library of mpi4py, started only if it is the one that launched this rank.

Importing this module imports neither torch nor mpi4py.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import socket
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.comm.process import is_end_near, limited
from distgnn.datasets import InputError

if TYPE_CHECKING:
    from types import ModuleType

    from distgnn.comm.launch import Launch

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
# Longest wait of a rank that ends for the others, where they end as well.
_FINALIZE_S = 20.0
# mpi4py.MPI once `start_mpi` has initialised it; a script that did so finalizes it itself.
_STARTED: list[ModuleType] = []


def load_mpi(launch: Launch) -> ModuleType:
    """Load and initialise the MPI library, if it is the one that started this rank.

    A library under the mpirun of another one sees one rank alone and reports no error.

    Args:
        launch: Place of this rank in the job.

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
        launch: Place of this rank in the job.

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
        _init(mpi)
        atexit.register(finalize_mpi, mpi, launch.rank)
    found = int(mpi.COMM_WORLD.size)
    if found != launch.size:
        raise InputError(
            f"the launcher started {launch.size} ranks, but the MPI library of mpi4py sees "
            f"{found}; use the mpirun of that library, beside this Python's executable"
        )


def _init(mpi: ModuleType) -> None:
    """Initialise MPI without the lock of the interpreter, which mpi4py would keep.

    MPI_Init waits for all ranks. The store of rank 0 answers from a thread that needs the lock, and
    a rank that still asks it would never come to its own MPI_Init.

    Raises:
        InputError: If the library refuses.
    """
    # The extension module is linked to the library, so that its names are found through it.
    start = ctypes.CDLL(mpi.__file__).MPI_Init_thread
    provided = ctypes.c_int()
    status = start(None, None, ctypes.c_int(mpi.THREAD_MULTIPLE), ctypes.byref(provided))
    if status != mpi.SUCCESS:
        raise InputError(f"the MPI library of mpi4py cannot be started (its error {status})")
    _STARTED.append(mpi)
    # As mpi4py does after its own call: errors of the library become exceptions.
    for communicator in (mpi.COMM_SELF, mpi.COMM_WORLD):
        communicator.Set_errhandler(mpi.ERRORS_RETURN)


def late_start(launch: Launch, timeout_s: float) -> str:
    """Return what a rank says that waited in vain for MPI, in which all ranks meet.

    Args:
        launch: Place of this rank in the job.
        timeout_s: Time that it has waited.
    """
    return (
        f"rank {launch.rank} ({socket.gethostname()}) waited {timeout_s:g} s for MPI to start on "
        "all ranks: a host cannot be reached, or a rank ended or is slow; see the output of the "
        "others and of the launcher, or wait longer with --start-timeout"
    )


def finalize_mpi(mpi: ModuleType, rank: int) -> None:
    """Finalize MPI if `start_mpi` started it; other threads run meanwhile, as in `start_mpi`.

    MPI waits for all ranks. Those of a script may work alone for as long as they like. Those of the
    command line end at the same time, and each is waited for 20 seconds.

    Args:
        mpi: mpi4py.MPI.
        rank: This rank.
    """
    if mpi not in _STARTED or mpi.Is_finalized():
        return
    _STARTED.remove(mpi)
    sentence = (
        f"rank {rank} ({socket.gethostname()}) waited {_FINALIZE_S:g} s for all ranks to end MPI: "
        "a host cannot be reached, or a rank ended before; what was reported or written is complete"
    )
    with limited(_FINALIZE_S, sentence) if is_end_near() else nullcontext():
        status = ctypes.CDLL(mpi.__file__).MPI_Finalize()
    if status != mpi.SUCCESS:
        sys.stderr.write(
            f"distgnn: MPI_Finalize failed (its error {status}); results that were reported are "
            "complete\n"
        )


def _settings(launch: Launch) -> dict[str, str]:
    """Variables that MPI libraries read when they start; those of others are not looked at."""
    if launch.is_local:
        return _LOCAL_SETTINGS
    has_fabric = any(folder.is_dir() and any(folder.iterdir()) for folder in _FABRICS)
    return {} if has_fabric else _TCP_SETTINGS
