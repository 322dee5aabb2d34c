"""The way from a launched process to a group: ranks meet, choose a transport, and connect.

Importing this module imports neither torch nor mpi4py.
"""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distgnn.comm.launch import detect
from distgnn.comm.mpi_library import MPI_LAUNCHERS, late_start, load_mpi
from distgnn.comm.process import die_with_parent, limited
from distgnn.datasets import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    import torch

    from distgnn.comm.group import Group
    from distgnn.comm.launch import Launch
    from distgnn.comm.roster import Roster
    from distgnn.comm.store import Store

BACKENDS = ("auto", "gloo", "mpi", "nccl")
_CONNECT_S = 25.0
_CONNECT_S_PER_RANK = 0.1


def _check_no_process_group(backend: str, launch: Launch) -> None:
    """Refuse a process group of the user's where gloo opens that of torch, which is one."""
    uses_gloo = backend in ("gloo", "nccl")
    if backend == "auto":
        uses_gloo = launch.kind not in MPI_LAUNCHERS
    # Nobody has opened one where torch was not loaded.
    dist = sys.modules.get("torch.distributed")
    if uses_gloo and dist is not None and dist.is_available() and dist.is_initialized():
        raise InputError(
            "torch.distributed already has a process group, of which a process has one, but "
            f"backend {backend} opens its own; drop torch.distributed.init_process_group, or call "
            "torch.distributed.destroy_process_group() first"
        )


def open_group(
    *,
    backend: str = "auto",
    interface: str | None = None,
    timeout_s: float = 120,
    stale_s: float = 30,
    has_lanes: bool = True,
    identity: Mapping[str, str] | None = None,
) -> Group:
    """Meet the other ranks of this job.

    The ranks of one machine meet through a file that only this user can read and listen on the
    loopback interface only. Ranks of several machines meet at the address that torchrun or the
    node list of srun gives, or at MASTER_ADDR, or at one that mpi4py passes around.

    Args:
        backend: The transport, or "auto"; see `choose_backend`.
        interface: Network interface to use; None takes the one that leads to rank 0.
        timeout_s: Longest wait for the other ranks to appear.
        stale_s: Time without a heartbeat after which a rank counts as dead; one that has come and
            waits for the others has a heart already.
        has_lanes: Whether gloo's ranks of one machine exchange through shared memory.
        identity: Values by name that this rank was started with, and all ranks must share.

    Returns:
        A group of the launcher's size.

    Raises:
        InputError: If the backend or interface does not exist, the backend cannot be used or has
            no use for the interface, or rank 0 has no known address. If a rank was started
            otherwise.
        PeerError: If the other ranks do not appear in time.
    """
    if backend not in BACKENDS:
        raise InputError(
            f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}; leave --backend "
            "out or choose another"
        )
    interfaces = [name for _, name in socket.if_nameindex()]
    if interface is not None and interface not in interfaces:
        raise InputError(
            f"network interface must be one of {', '.join(interfaces)} on host "
            f"{socket.gethostname()}, got {interface!r}; leave --interface out or choose another"
        )
    launch = detect()
    if launch.size == 1:
        from distgnn.comm.single import SingleGroup

        return SingleGroup(launch)
    check_interface(backend, launch, interface)
    _check_no_process_group(backend, launch)
    from distgnn.comm import early
    from distgnn.comm.rendezvous import common_interface

    die_with_parent()
    place, roster = early.open_meeting(
        launch, interface=interface, timeout_s=timeout_s, stale_s=stale_s
    )
    # Once all have come, nobody has anything to do that takes long.
    connect_s = min(timeout_s, max(_CONNECT_S, launch.size * _CONNECT_S_PER_RANK))
    try:
        roster.call(timeout_s, {"number of ranks": str(launch.size), **(identity or {})})
        # All ranks take part, whether they name an interface or not.
        found = place.interface or common_interface(place, roster, connect_s)
        place.interface = interface or found
        choice = choose_backend(
            backend, launch, place.store, roster, interface=interface, timeout_s=timeout_s
        )
        group: Group
        with roster.watching(lambda: place.client(connect_s)):
            if choice.mpi is not None:
                from distgnn.comm.transports.mpi import MpiGroup

                group = MpiGroup(launch, place, choice.mpi, timeout_s=timeout_s, stale_s=stale_s)
            else:
                from distgnn.comm.transports.gloo import GlooGroup

                group = GlooGroup(
                    launch, place, timeout_s=connect_s, stale_s=stale_s, has_lanes=has_lanes
                )
        roster.settle()
        early.end()
    finally:
        place.remove_file()
    group.reason = choice.reason
    return group


@dataclass(frozen=True)
class TransportChoice:
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
    roster: Roster,
    *,
    interface: str | None,
    timeout_s: float,
) -> TransportChoice:
    """Choose the transport, the same on every rank; collective.

    On one host MPI's sums and barriers are several times faster than gloo's, which cross the
    loopback interface; rows take about as long, through shared memory with both. Between hosts gloo
    fills an Ethernet link, computes beside it and needs no polling. MPI is faster there only on
    another fabric, which the user knows of and asks for.

    Args:
        requested: "auto" or the name of a transport.
        launch: Place of this rank in the job.
        store: Store of the job.
        roster: Roster of the job; all ranks have come.
        interface: The network interface that the user named, if any.
        timeout_s: Longest wait for a rank to load MPI.

    Raises:
        InputError: If MPI is requested and a rank cannot use it.
        PeerError: If a rank does not answer in time.
    """
    if requested in ("gloo", "nccl"):
        # Ranks that exchange by NCCL find each other, and agree, by gloo.
        return TransportChoice("gloo")
    if requested == "auto":
        reason = _reason_against(launch, interface)
        if reason:
            return TransportChoice("gloo", reason)
    try:
        with roster.hearing(), limited(timeout_s, late_start(launch, timeout_s)):
            mpi, problem = load_mpi(launch), ""
    except InputError as error:
        mpi, problem = None, str(error)
    # A sentence of each rank that cannot use MPI; empty for the others.
    problems = roster.gather("mpi", problem, "say whether they can use MPI", timeout_s)
    worst = next((text for text in problems if text), "")
    if not worst:
        reason = "all ranks are on this host, and MPI works in its memory"
        return TransportChoice("mpi", reason if requested == "auto" else "", mpi)
    if requested == "auto":
        return TransportChoice("gloo", worst.partition(";")[0])
    from distgnn.comm import early
    from distgnn.comm.store import leave_store

    flaw = InputError(f"backend 'mpi' cannot be used: {worst}; or choose --backend gloo")
    # All ranks know it alike; a program that goes on meets anew.
    roster.give_up(flaw)
    early.meet_anew()
    leave_store(store, launch.rank, launch.size)
    raise flaw


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
        launch: Place of this rank in the job.
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
    """Say why MPI is not even tried; nothing if it is."""
    if launch.kind not in MPI_LAUNCHERS:
        return f"{launch.kind} is no launcher of MPI"
    if not launch.is_local:
        return "the ranks are on several hosts (on InfiniBand try --backend mpi)"
    if interface is not None:
        return f"interface {interface} was asked for"
    return ""


def on_device(group: Group, device: torch.device, backend: str) -> Group:
    """Let a group take the tensors of a device; collective.

    Args:
        group: All ranks.
        device: Device that this rank computes on; not the processor.
        backend: Transport as the user named it.

    Returns:
        A group for tensors of the device.

    Raises:
        InputError: If a rank asks for NCCL and cannot have it, on every rank.
    """
    if backend == "nccl" and group.size > 1:
        from distgnn.comm.transports.nccl import NcclGroup, check_nccl

        check_nccl(group, device)
        return NcclGroup(group, device)
    from distgnn.comm.transports.staged import StagedGroup

    return StagedGroup(group, device)
