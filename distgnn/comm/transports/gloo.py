"""Ranks as processes that talk over TCP with gloo, and on one machine through its memory."""

from __future__ import annotations

import os
import socket
import stat
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions, BarrierOptions

from distgnn.comm.errors import PeerError
from distgnn.comm.group import ReduceOp, Work, check_size, check_tensor
from distgnn.comm.transports.lanes import Inbox, Lanes
from distgnn.comm.transports.torch_store import TorchStore
from distgnn.comm.transports.watched import MESSAGE_TIMEOUT_S, WatchedGroup, first_line

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.comm.launch import Launch
    from distgnn.comm.store import Meeting

_OPS = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
}


class GlooGroup(WatchedGroup):
    """A group over torch.distributed's gloo, with a watchdog that names the rank that fails."""

    backend = "gloo"

    def __init__(
        self,
        launch: Launch,
        meeting: Meeting,
        *,
        timeout_s: float = 300,
        stale_s: float = 30,
        message_timeout_s: float = MESSAGE_TIMEOUT_S,
        has_lanes: bool = True,
    ) -> None:
        """Connect to all other ranks.

        Args:
            launch: Place of this rank in the job.
            meeting: The store of the job.
            timeout_s: Longest wait for the connections.
            stale_s: Time without a heartbeat after which a rank counts as dead.
            message_timeout_s: Longest wait for a message of a rank whose heart beats.
            has_lanes: Whether ranks of one machine exchange through shared memory.

        Raises:
            PeerError: If the ranks cannot connect to each other.
        """
        super().__init__(
            launch,
            meeting,
            interface=meeting.interface,
            timeout_s=timeout_s,
            message_timeout_s=message_timeout_s,
        )
        assert not dist.is_initialized(), "torch.distributed already has a process group"
        # Nobody would name a rank that is lost before the watchdog runs.
        self._patience = timedelta(seconds=timeout_s)
        if meeting.interface:
            os.environ["GLOO_SOCKET_IFNAME"] = meeting.interface
        before = _sockets()
        try:
            dist.init_process_group(
                "gloo",
                store=TorchStore(meeting.store, "gloo/"),
                rank=launch.rank,
                world_size=launch.size,
                timeout=timedelta(seconds=timeout_s),
            )
        except RuntimeError as error:
            raise PeerError(
                f"rank {launch.rank} ({self.host}) could not connect to the other "
                f"{launch.size - 1} ranks over interface {meeting.interface!r} "
                f"({first_line(error)}); see their output or name another interface"
            ) from error
        self._sockets = _sockets() - before
        world = dist.group.WORLD
        assert world is not None
        self._world: dist.ProcessGroup = world
        self._lanes: Lanes | None = None
        try:
            self._watch(meeting, stale_s=stale_s, endpoints=_endpoints(self._sockets))
            self._patience = timedelta(seconds=message_timeout_s)
            if has_lanes:
                self._lanes = Lanes(self)
        except BaseException:
            # Nobody else can: there is no group that could be closed.
            if self._watchdog is not None:
                self._watchdog.stop()
            self._leave()
            raise

    def isend(self, tensor: Tensor, peer: int, tag: int) -> Work:
        """Start sending a tensor; see Group."""
        self._check_message(tensor, peer, tag)
        if tensor.numel() == 0:
            return _GlooWork(self, None, tensor)
        self._check_alive()
        if self._lanes is not None and self._lanes.takes(peer, tensor):
            try:
                self._lanes.send(tensor, peer, tag)
            except RuntimeError as error:
                raise self._diagnose(error) from error
            return _GlooWork(self, None, tensor)
        try:
            work = self._world.send([tensor.detach()], peer, tag)
        except RuntimeError as error:
            raise self._diagnose(error) from error
        return _GlooWork(self, work, tensor)

    def irecv(self, tensor: Tensor, peer: int, tag: int) -> Work:
        """Start receiving into a tensor; see Group."""
        self._check_message(tensor, peer, tag)
        if tensor.numel() == 0:
            return _GlooWork(self, None, tensor)
        self._check_alive()
        if self._lanes is not None and self._lanes.takes(peer, tensor):
            return _LaneWork(self, self._lanes.inboxes[peer], tensor, peer, tag)
        try:
            work = self._world.recv([tensor.detach()], peer, tag)
        except RuntimeError as error:
            raise self._diagnose(error) from error
        return _GlooWork(self, work, tensor)

    def all_reduce(self, tensor: Tensor, op: ReduceOp = "sum") -> None:
        """Reduce element by element over all ranks, in place; see Group."""
        check_tensor(tensor, is_reduced=True)
        if tensor.numel() == 0:
            return
        options = dist.AllreduceOptions()
        options.reduceOp = _OPS[op]  # type: ignore[assignment]
        options.timeout = self._patience
        self._check_alive()
        self._finish(self._world.allreduce([tensor.detach()], options))

    def broadcast(self, tensor: Tensor, root: int = 0) -> None:
        """Overwrite the tensor with that of one rank; see Group."""
        check_tensor(tensor)
        assert 0 <= root < self.size, f"no rank {root}"
        if tensor.numel() == 0:
            return
        options = dist.BroadcastOptions()
        options.rootRank = root
        options.timeout = self._patience
        self._check_alive()
        self._finish(self._world.broadcast([tensor.detach()], options))

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks; see Group."""
        check_tensor(tensor)
        rows = [torch.empty_like(tensor) for _ in range(self.size)]
        if tensor.numel() > 0:
            self._check_alive()
            options = AllgatherOptions()
            options.timeout = self._patience
            self._finish(self._world.allgather([rows], [tensor.detach()], options))
        return rows

    def barrier(self) -> None:
        """Return when every rank has called it."""
        self._check_alive()
        options = BarrierOptions()
        options.timeout = self._patience
        self._finish(self._world.barrier(options))

    def _leave(self) -> None:
        dist.destroy_process_group()
        # The threads of gloo end with the last reference. One that frees a tensor while the
        # interpreter ends would abort the process.
        del self._world

    def _unblock(self) -> None:
        """Make gloo see the end of its connections, so that a verb that waits raises at once.

        Unlike ProcessGroupGloo.abort(), which returns without waking the waiting thread.
        """
        for number in self._sockets & _sockets():
            try:
                with socket.socket(fileno=os.dup(number)) as connection:
                    # The store must live on: the other ranks read the cause there.
                    ends = connection.getsockname()[1:2], connection.getpeername()[1:2]
                    if (self._store_port,) not in ends:
                        connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def _finish(self, work: dist.Work) -> None:
        try:
            work.wait(self._patience)
        except RuntimeError as error:
            raise self._diagnose(error) from error


class _GlooWork:
    """A message under way; keeps its tensor alive until it has been handed over."""

    def __init__(self, group: GlooGroup, work: dist.Work | None, tensor: Tensor) -> None:
        self._group = group
        self._work = work
        self._tensor = tensor

    def wait(self) -> None:
        if self._work is not None:
            self._group._finish(self._work)
            self._work = None


class _LaneWork:
    """A message of a rank of this machine that is copied when it is waited for."""

    def __init__(self, group: GlooGroup, inbox: Inbox, tensor: Tensor, peer: int, tag: int) -> None:
        self._group = group
        self._inbox = inbox
        self._tensor: Tensor | None = tensor
        self._peer = peer
        self._name = inbox.expect(tag)

    def wait(self) -> None:
        if self._tensor is None:
            return
        tensor, self._tensor = self._tensor, None
        group, inbox, name = self._group, self._inbox, self._name
        what = f"rank {self._peer} to send tag {name[0]}"
        try:
            group._wait_until(lambda: inbox.has(name), what)
        except RuntimeError as error:
            raise group._diagnose(error) from error
        check_size(group, self._peer, what, tensor, inbox.take(name, tensor))


def _sockets() -> set[int]:
    """Open sockets of this process; empty where the system does not list them."""
    found: set[int] = set()
    try:
        entries = list(Path("/proc/self/fd").iterdir())
    except OSError:  # there is no such folder, or no file is free
        return found
    for entry in entries:
        try:
            if stat.S_ISSOCK(entry.stat().st_mode):
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def _endpoints(numbers: set[int]) -> list[str]:
    """Own addresses of sockets, as gloo writes them in its messages."""
    found: list[str] = []
    for number in sorted(numbers):
        try:
            with socket.socket(fileno=os.dup(number)) as connection:
                name = connection.getsockname()
        except OSError:
            continue
        if isinstance(name, tuple):
            # gloo prints the port in network byte order; socket.htons gives it as gloo does.
            found += [f"[{name[0]}]:{port}" for port in (name[1], socket.htons(name[1]))]
    return found
