"""Who decomposes and who preconditions: the longest first, and grids of any size."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distgnn.datasets.errors import InputError
from distgnn.optim.sharing import Grid, shares
from distgnn.settings.kfac import KfacOptions, parse


def makespan(costs, owners, num_ranks):
    return max(
        sum(cost for cost, owner in zip(costs, owners, strict=True) if owner == rank)
        for rank in range(num_ranks)
    )


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 4))
def test_the_longest_first_ends_within_four_thirds_of_the_best_time(costs, num_ranks):
    got = makespan(costs, shares(costs, num_ranks), num_ranks)
    best = min(
        makespan(costs, owners, num_ranks)
        for owners in product(range(num_ranks), repeat=len(costs))
    )
    assert got <= 4 / 3 * best


@given(st.integers(1, 9), st.data())
def test_every_rank_gets_each_result_once_from_a_worker(size, data):
    grid = Grid(size, data.draw(st.integers(1, size)))
    for owner in range(size):
        workers = grid.workers(owner)
        assert workers[0] == owner
        assert len(set(workers)) == grid.num_workers
        takers = [taker for worker in workers for taker in grid.takers(owner, worker)]
        assert sorted([*workers, *takers]) == list(range(size))
        assert all(grid.source(owner, worker) == worker for worker in workers)


@pytest.mark.parametrize(
    ("workers", "counts"),
    [
        ("all", [1, 2, 3, 7]),
        ("half", [1, 1, 2, 4]),
        ("one", [1, 1, 1, 1]),
        ("0.3", [1, 1, 1, 3]),
        ("1", [1, 2, 3, 7]),
    ],
)
def test_workers_are_a_share_of_the_ranks(workers, counts):
    options = parse(f"workers={workers}")
    assert [options.num_workers(size) for size in (1, 2, 3, 7)] == counts


def test_settings_are_read_and_written_alike():
    options = parse("damping=0.1, inverses=10,workers=half")
    assert options == KfacOptions(damping=0.1, inverses=10, workers="half")
    assert parse(str(options)) == options
    assert str(parse("damping=.001,factors=5,first=10")) == ""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "gamma=1",
            "--kfac has no setting 'gamma'; it has damping, factors, inverses, first, clip, decay",
        ),
        ("clip=1,clip=2", "--kfac sets clip twice; keep one"),
        ("damping=0", "damping of --kfac must be positive and finite, got 0.0"),
        ("damping=inf", "damping of --kfac must be positive and finite, got inf"),
        ("damping=much", "damping of --kfac must be positive and finite, got much"),
        ("factors=0", "factors of --kfac must be a whole number of at least 1, got 0"),
        ("inverses=2.5", "inverses of --kfac must be a whole number of at least 1, got 2.5"),
        ("clip=-1", "clip of --kfac must be at least 0 and finite, got -1.0"),
        ("decay=1", "decay of --kfac must be at least 0 and below 1, got 1.0"),
        (
            "workers=two",
            "workers of --kfac must be all, half, one or a share above 0 and at most 1",
        ),
        (
            "workers=1.5",
            "workers of --kfac must be all, half, one or a share above 0 and at most 1",
        ),
        ("widest=0", "widest of --kfac must be a whole number of at least 1, got 0"),
    ],
)
def test_settings_that_are_not_allowed_are_named(text, sentence):
    with pytest.raises(InputError, match=sentence):
        parse(text)
