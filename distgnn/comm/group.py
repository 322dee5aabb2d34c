"""The contract between the runtime and its ranks, the same for every transport."""

from __future__ import annotations

import json
import socket
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, Protocol

import torch

from distgnn.comm.errors import PeerError
from distgnn.datasets import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from distgnn.comm.launch import Launch

__all__ = ["Group", "PeerError", "ReduceOp", "Work"]

ReduceOp = Literal["sum", "max", "min"]

REDUCIBLE = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.int8, torch.uint8, torch.int32, torch.int64}
)


class Work(Protocol):
    """A message under way."""

    def wait(self) -> None:
        """Return when the message has been handed over; raise PeerError if it cannot be."""
        ...


class Group(ABC):
    """The ranks of a job and the verbs between them.

    Every verb but isend and irecv is collective: all ranks call it, in the same order.

    Attributes:
        rank: This process, in [0, size).
        size: Number of ranks.
        local_rank: This process among those of its host.
        local_size: Number of ranks on this host.
        host: Name of this host.
        launcher: Kind of the launcher, as in Launch.
        backend: Name of the transport.
        interface: Network interface of the transport; empty where there is none.
        reason: Why this transport was taken; empty where there was no choice.
        device: Device that this rank computes on. The verbs take its tensors, and the processor's.
    """

    backend: str = ""
    reason: str = ""
    device: torch.device = torch.device("cpu")

    def __init__(self, launch: Launch, *, interface: str = "") -> None:
        """Describe the group.

        Args:
            launch: Place of this rank in the job.
            interface: Network interface of the transport.
        """
        self.rank = launch.rank
        self.size = launch.size
        self.local_rank = launch.local_rank
        self.local_size = launch.local_size
        self.launcher = launch.kind
        self.host = socket.gethostname()
        self.interface = interface

    @abstractmethod
    def isend(self, tensor: Tensor, peer: int, tag: int) -> Work:
        """Start sending a tensor.

        Args:
            tensor: Contiguous, on the CPU; must stay unchanged until wait().
            peer: Another rank.
            tag: At least 0. Messages of one (peer, tag) arrive in the order sent.
        """

    @abstractmethod
    def irecv(self, tensor: Tensor, peer: int, tag: int) -> Work:
        """Start receiving into a tensor; post it before the peer's isend can wait for it.

        Args:
            tensor: Contiguous, on the CPU, of the size and dtype that is sent; must not be
                touched until wait(). A shorter message is not noticed by every transport.
            peer: Another rank.
            tag: Tag of the isend.
        """

    def transfer(
        self,
        incoming: Sequence[tuple[Tensor, int]],
        outgoing: Sequence[tuple[Tensor, int]],
        tag: int,
    ) -> list[Work]:
        """Start all messages of one tag: receives before sends.

        gloo announces a receive behind queued payload, so that sending first makes the link
        half-duplex.

        Args:
            incoming: Tensors as for irecv, each with its peer.
            outgoing: Tensors as for isend, each with its peer.
            tag: Tag of the isend.

        Returns:
            Messages under way; wait for each.
        """
        works = [self.irecv(tensor, peer, tag) for tensor, peer in incoming]
        return works + [self.isend(tensor, peer, tag) for tensor, peer in outgoing]

    @abstractmethod
    def all_reduce(self, tensor: Tensor, op: ReduceOp = "sum") -> None:
        """Reduce element by element over all ranks, in place.

        The bits are the same on all ranks and, for a given size, in every run.

        Args:
            tensor: Contiguous, on the CPU, same shape and dtype on every rank.
            op: Operation that makes one element of two.
        """

    @abstractmethod
    def broadcast(self, tensor: Tensor, root: int = 0) -> None:
        """Overwrite the tensor with that of one rank.

        Args:
            tensor: Contiguous, on the CPU, same shape and dtype on every rank.
            root: The rank whose tensor is taken.
        """

    @abstractmethod
    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks, in rank order.

        Args:
            tensor: Contiguous, on the CPU, same shape and dtype on every rank.
        """

    @abstractmethod
    def barrier(self) -> None:
        """Return when every rank has called it."""

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        """Return the bytes of all ranks, in rank order.

        Args:
            data: Any length, which may differ between ranks. Meant for JSON.
        """
        lengths = torch.stack(self.all_gather(torch.tensor([len(data)]))).flatten()
        width = int(lengths.max())
        padded = torch.zeros(width, dtype=torch.uint8)
        if data:
            padded[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        rows = self.all_gather(padded)
        return [
            row[:length].numpy().tobytes()
            for row, length in zip(rows, lengths.tolist(), strict=True)
        ]

    def agree(self, error: Exception | None) -> None:
        """Raise the same error on every rank if any rank has one.

        Args:
            error: Failure of this rank; None if there is none.

        Raises:
            InputError: If the lowest failing rank passed an InputError.
            RuntimeError: If it passed another error. Both carry its sentence, after "rank R: "
                unless every rank failed with that sentence.
        """
        report = None if error is None else [_sentence(error), isinstance(error, InputError)]
        reports = [json.loads(row) for row in self.all_gather_bytes(json.dumps(report).encode())]
        failed = [rank for rank, row in enumerate(reports) if row is not None]
        if not failed:
            return
        first = failed[0]
        sentence, is_input_error = reports[first]
        if any(row is None or row[0] != sentence for row in reports):
            sentence = f"rank {first}: {sentence}"
        raise (InputError if is_input_error else RuntimeError)(sentence) from error

    def note(self, epoch: int, phase: str) -> None:
        """Say what this rank is doing, for failure messages; costs next to nothing.

        Args:
            epoch: The epoch under way.
            phase: Two or three words, such as "halo exchange".
        """
        del epoch, phase

    def set_checkpoint(self, epoch: int) -> None:
        """Say which epoch was checkpointed last, for failure messages.

        Args:
            epoch: The epoch of the newest complete checkpoint.
        """
        del epoch

    def publish_failure(self, error: BaseException) -> None:
        """Tell the other ranks why this one ends; see distgnn.comm.fail.

        Args:
            error: The cause.
        """
        del error

    @abstractmethod
    def close(self) -> None:
        """Leave the group once every rank is done with it."""

    def _check_message(self, tensor: Tensor, peer: int, tag: int) -> None:
        assert 0 <= peer < self.size, f"no rank {peer} among {self.size}"
        assert peer != self.rank, f"rank {peer} cannot send to itself"
        assert tag >= 0, f"tag must not be negative, got {tag}"
        check_tensor(tensor)


def check_tensor(tensor: Tensor, *, is_reduced: bool = False) -> None:
    """Assert that a transport can take this tensor.

    Args:
        tensor: An argument of a verb.
        is_reduced: Whether its elements are combined, which not every dtype allows.
    """
    assert tensor.device.type == "cpu", f"tensor must be on the CPU, got {tensor.device}"
    assert tensor.is_contiguous(), "tensor must be contiguous"
    assert not is_reduced or tensor.dtype in REDUCIBLE, f"cannot reduce {tensor.dtype}"


def check_size(group: Group, source: int, what: str, tensor: Tensor, received: int) -> None:
    """Refuse a message that is not as long as its receive.

    Args:
        group: The receiver.
        source: The sender.
        what: Name of the message, for the error.
        tensor: Place for the message.
        received: Bytes that came.

    Raises:
        RuntimeError: If they are not those of the tensor.
    """
    expected = tensor.numel() * tensor.element_size()
    if received != expected:
        raise RuntimeError(
            f"rank {source} sent {received} bytes, but rank {group.rank} expected {expected} when "
            f"it waited for {what}; both must agree"
        )


def combine(rows: Sequence[Tensor], op: ReduceOp) -> Tensor:
    """Return the reduction of tensors of one shape and dtype, in their order.

    Args:
        rows: At least one.
        op: Operation that makes one element of two.
    """
    total = rows[0].clone()
    for row in rows[1:]:
        if op == "sum":
            total += row
        elif op == "max":
            torch.maximum(total, row, out=total)
        else:
            torch.minimum(total, row, out=total)
    return total


def _sentence(error: Exception) -> str:
    if isinstance(error, (InputError, PeerError)):
        return str(error)
    return f"{type(error).__name__}: {error}"
