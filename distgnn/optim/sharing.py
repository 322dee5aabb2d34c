"""Division of K-FAC's work among ranks: who decomposes a group of factors, and who uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


def shares(costs: Sequence[float], num_ranks: int) -> list[int]:
    """Give each piece of work to a rank: the longest first, to the rank with the least so far.

    The last rank to end takes at most 4/3 - 1 / (3 num_ranks) of the best time.

    Args:
        costs: (num_pieces,) time of each piece.
        num_ranks: Number of ranks.

    Returns:
        (num_pieces,) rank of each piece; ties go to the lowest rank.

    References:
        Graham, "Bounds on Multiprocessing Timing Anomalies", SIAM Journal on Applied Mathematics
        1969.
    """
    loads = [0.0] * num_ranks
    owners = [0] * len(costs)
    for piece in sorted(range(len(costs)), key=lambda piece: -costs[piece]):
        owner = loads.index(min(loads))
        owners[piece] = owner
        loads[owner] += costs[piece]
    return owners


class Grid(NamedTuple):
    """Ranks that precondition with what an owner decomposed, and those that get the result.

    With all ranks as workers the decompositions travel to all (COMM-OPT); with one worker they stay
    where they are, and preconditioned gradients travel (MEM-OPT); between, both travel.

    Attributes:
        size: Number of ranks.
        num_workers: Number of workers of each owner, itself included.

    References:
        Pauloski et al., "KAISA: An Adaptive Second-Order Optimizer Framework for Deep Neural
        Networks", SC 2021, section 3.
    """

    size: int
    num_workers: int

    def workers(self, owner: int) -> list[int]:
        """Return the ranks that precondition for an owner: itself and those that follow it."""
        return [(owner + step) % self.size for step in range(self.num_workers)]

    def source(self, owner: int, rank: int) -> int:
        """Return the worker that gives a rank its result; the rank itself if it is a worker.

        Args:
            owner: Rank that decomposed.
            rank: Rank that needs the result.
        """
        return (owner + (rank - owner) % self.size % self.num_workers) % self.size

    def takers(self, owner: int, rank: int) -> list[int]:
        """Return the ranks that get an owner's results from a rank.

        Args:
            owner: Rank that decomposed.
            rank: Rank that has the results.
        """
        others = (other for other in range(self.size) if other != rank)
        return [other for other in others if self.source(owner, other) == rank]
