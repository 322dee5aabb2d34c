"""Checksums of the rows that travel, so that a bit that flips on the way is named, not learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn import kernels
from distgnn.comm.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from distgnn.comm.group import Group, Work


class NoChecks:
    """Rows are taken as they come."""

    def transfer(
        self,
        group: Group,
        incoming: Sequence[tuple[Tensor, int]],
        outgoing: Sequence[tuple[Tensor, int]],
        tag: int,
        what: str,
    ) -> list[Work]:
        """Start all messages of one tag; see `Group.transfer`.

        Args:
            group: The ranks.
            incoming: Tensors to receive into, each with its peer.
            outgoing: Tensors to send, each with its peer.
            tag: Tag of the messages.
            what: Name of the messages, for the error.
        """
        del what
        return group.transfer(incoming, outgoing, tag)


class CheckedRows(NoChecks):
    """A CRC-32C travels behind each message, and is compared when the message was waited for.

    It covers the bytes that travel, be they rows or codes; `kernels.checksum` says what it notices.
    Its 8 bytes are not counted as rows.

    Args:
        epoch: Function that names the epoch, such as "epoch 3".
    """

    def __init__(self, epoch: Callable[[], str]) -> None:
        self._epoch = epoch

    def transfer(
        self,
        group: Group,
        incoming: Sequence[tuple[Tensor, int]],
        outgoing: Sequence[tuple[Tensor, int]],
        tag: int,
        what: str,
    ) -> list[Work]:
        """Start all messages of one tag, each with its checksum behind it; see `NoChecks`.

        Returns:
            One for all messages under way, whose `wait` raises PeerError if rows were altered.
        """
        # Checksums lie where the rows do: some transports take tensors of a device alone.
        receiving = [
            (torch.empty(1, dtype=torch.int64, device=rows.device), peer) for rows, peer in incoming
        ]
        # Messages of one peer and tag arrive in the order in which they were sent. Rows leave
        # first: they travel meanwhile, and a copy of them has brought them into the cache.
        works = group.transfer(incoming, outgoing, tag)
        sending = [
            (torch.tensor([checksum(rows)], device=rows.device), peer) for rows, peer in outgoing
        ]
        sums = group.transfer(receiving, sending, tag)
        about = f"sent to rank {group.rank} in {what} of {self._epoch()}"
        pairs = [
            (rows, told, peer) for (rows, peer), (told, _) in zip(incoming, receiving, strict=True)
        ]
        # One for all, as some transports return fewer than there are messages.
        return [_Checked(works, sums, pairs, about, [told for told, _ in sending])]


class _Checked:
    """Messages under way, each with its checksum behind it; holds what leaves."""

    def __init__(
        self,
        works: list[Work],
        sums: list[Work],
        pairs: list[tuple[Tensor, Tensor, int]],
        about: str,
        leaving: list[Tensor],
    ) -> None:
        self._works = works
        self._sums = sums
        self._pairs = pairs
        self._about = about
        self._leaving = leaving

    def wait(self) -> None:
        flaws = []
        num_messages = len(self._pairs) + len(self._leaving)
        if len(self._works) == len(self._sums) == num_messages:
            # Rows that have come are read while others still travel.
            for pair, work, told in zip(self._pairs, self._works, self._sums, strict=False):
                work.wait()
                told.wait()
                flaws.append(self._flaw_of(*pair))
            del self._works[: len(self._pairs)], self._sums[: len(self._pairs)]
            self._pairs = []
        for work in (*self._works, *self._sums):
            work.wait()
        flaws += [self._flaw_of(*pair) for pair in self._pairs]
        for flaw in filter(None, flaws):
            raise PeerError(flaw)

    def _flaw_of(self, rows: Tensor, told: Tensor, peer: int) -> str:
        """Return what is wrong with a message that has come; empty if it is as it was sent."""
        found, sent = checksum(rows), int(told)
        if found == sent:
            return ""
        return (
            f"rows that rank {peer} {self._about} were altered on the way: their checksum "
            f"is {found:08x}, not {sent:08x}; test the memory and the network of both "
            "hosts, and continue with the same command and --resume"
        )


def evaluation_after(num_epochs: int) -> str:
    """Name the evaluation after so many epochs, for `CheckedRows`."""
    return f"the evaluation after epoch {num_epochs - 1}" if num_epochs else "the set-up"


def checksum(rows: Tensor) -> int:
    """Return the CRC-32C of the bytes of a tensor, on any device."""
    return kernels.checksum(rows.detach().cpu().contiguous())
