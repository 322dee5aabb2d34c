"""Sum of rows over ranks, coded: slices to their owners, which add them and tell the sums to all.

Every rank owns a slice of the rows::

    rank p: code(x_p) --slice q--> rank q     s_q = x_0 + ... + x_(P-1) of slice q, in rank order
    rank q: code(s_q) -----------> all ranks  every rank reads the same codes, its own as well

So all ranks end with the same bits. An owner adds its own part of x as it is.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from distgnn.exchange.coder import Coder
from distgnn.exchange.tags import GRADIENTS_TAG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from distgnn.comm.group import Group
    from distgnn.exchange.codec import CodecSpec
    from distgnn.kernels.seeds import MaskSeeds
    from distgnn.ops.buffers import Buffers

# Numbers of these messages begin here, where no message of rows comes.
_FIRST_MESSAGE = 1 << 48


def sliced_sum(
    group: Group,
    rows: Tensor,
    spec: CodecSpec,
    seeds: MaskSeeds,
    buffers: Buffers,
    members: Sequence[int] | None = None,
) -> int:
    """Sum rows over ranks in place, coded twice; collective.

    Args:
        group: All ranks, at least 2.
        rows: (num_rows, width) float32, contiguous; the same shape on every rank. Changed. Where a
            value of a rank is not finite, all that it sends is NaN.
        spec: The code; it codes rows of this width.
        seeds: Seeds of random rounding, which know the epoch.
        buffers: Memory for codes and rows.
        members: Ranks of the sum, at least 2, ascending, this one among them; they alone call this.
            All ranks if None.

    Returns:
        Payload bytes that this rank sent: those of `slice_bytes`.

    References:
        Markov et al., "CGX: Adaptive System Support for Communication-Efficient Deep Learning",
        Middleware 2022, section 4 (scatter-reduce-allgather).
    """
    coder = Coder(spec, rows, 0, buffers)
    members = range(group.size) if members is None else members
    bounds = pairwise(_bounds(len(rows), len(members)))
    slices = {rank: slice(*pair) for rank, pair in zip(members, bounds, strict=True)}
    peers = [peer for peer in members if peer != group.rank]
    mine = slices[group.rank]
    first = _FIRST_MESSAGE + 2 * group.rank

    coded = coder.pack(rows, None, len(rows), seeds.wire_seed(first))
    arrived = {peer: coder.landing(len(rows[mine])) for peer in peers}
    _transfer(
        group,
        [(arrived[peer], peer) for peer in peers],
        [(coded[slices[peer]], peer) for peer in peers],
    )
    total = buffers.empty(len(rows[mine]), rows.shape[1], rows.dtype).zero_()
    for rank in members:
        total += rows[mine] if rank == group.rank else coder.unpack(arrived[rank])

    told = coder.landing(len(rows))
    told[mine] = coder.pack(total, None, len(total), seeds.wire_seed(first + 1))
    _transfer(
        group,
        [(told[slices[peer]], peer) for peer in peers],
        [(told[mine], peer) for peer in peers],
    )
    for each in slices.values():
        rows[each] = coder.unpack(told[each])
    return slice_bytes(len(rows), members.index(group.rank), len(members), coded.shape[1])


def slice_bytes(num_rows: int, rank: int, num_ranks: int, row_bytes: int) -> int:
    """Return the payload bytes that a rank sends: slices of others, and its own to all others.

    Args:
        num_rows: Number of rows.
        rank: The rank.
        num_ranks: Number of ranks.
        row_bytes: Bytes of a coded row.
    """
    start, stop = _bounds(num_rows, num_ranks)[rank : rank + 2]
    own = stop - start
    return (num_rows - own + (num_ranks - 1) * own) * row_bytes


def _bounds(num_rows: int, num_ranks: int) -> list[int]:
    """Return where the slice of each rank begins, and the end of the last."""
    return [rank * num_rows // num_ranks for rank in range(num_ranks + 1)]


def _transfer(
    group: Group, incoming: list[tuple[Tensor, int]], outgoing: list[tuple[Tensor, int]]
) -> None:
    """Send and receive; both ends know which slices have no rows."""
    works = group.transfer(
        [(rows, peer) for rows, peer in incoming if len(rows)],
        [(rows, peer) for rows, peer in outgoing if len(rows)],
        GRADIENTS_TAG,
    )
    for work in works:
        work.wait()
