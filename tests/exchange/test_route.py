"""Routes and the bins that their rows are dealt to."""

from __future__ import annotations

import pytest
import torch

from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.exchange.route import plan_route

COUNTS = [[0, 7, 3], [4, 0, 1], [6, 5, 0]]


def routes_of(counts):
    def on_rank(group):
        column = [counts[peer][group.rank] for peer in range(group.size)]
        return plan_route(group, counts[group.rank], column)

    return run_ranks(len(counts), on_rank)


@pytest.mark.parametrize("num_bins", [1, 2, 5, 13])
def test_every_row_has_one_bin_and_all_bins_hold_the_same_to_within_one_row(num_bins):
    routes = routes_of(COUNTS)
    sizes = []
    for bin_id in range(num_bins):
        rows = [s.rows_of_bin(bin_id, num_bins) for route in routes for s in route.outgoing]
        sizes.append(sum(len(range(r.start, r.stop, r.step)) for r in rows))
    assert sum(sizes) == sum(map(sum, COUNTS))
    assert max(sizes) - min(sizes) <= 1


def test_sender_and_receiver_put_a_row_into_the_same_bin():
    routes = routes_of(COUNTS)
    for rank, route in enumerate(routes):
        for segment in route.outgoing:
            arriving = next(s for s in routes[segment.peer].incoming if s.peer == rank)
            for bin_id in range(4):
                sent = segment.rows_of_bin(bin_id, 4)
                got = arriving.rows_of_bin(bin_id, 4)
                assert sent.start - segment.start == got.start - arriving.start
                assert sent.stop - segment.start == got.stop - arriving.start


def test_the_reversed_route_carries_the_same_rows_back():
    route = routes_of(COUNTS)[1]
    back = route.reversed()
    assert (back.outgoing, back.num_out) == (route.incoming, route.num_in)
    assert back.reversed() == route


def test_parts_of_different_partitions_are_refused_on_all_ranks():
    def on_rank(group):
        out = COUNTS[group.rank]
        column = [COUNTS[peer][group.rank] for peer in range(group.size)]
        if group.rank == 1:
            column[0] += 1
        with pytest.raises(InputError, match=r"part 0 sends 7 rows to part 1, which expects 8"):
            plan_route(group, out, column)
        return torch.tensor(0)

    run_ranks(3, on_rank)
