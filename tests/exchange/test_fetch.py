"""Rows of any vertices: found and fetched wherever their roots lie, and the way back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import cut, make_graph

from distgnn.comm.threads import run_ranks
from distgnn.exchange.base import Synchronous
from distgnn.exchange.fetch import Fetch, Roots

NUM_VERTICES = 40


def on_ranks(num_parts, work, how="anywhere"):
    parts = cut(make_graph(num_vertices=NUM_VERTICES), num_parts, how=how)

    def on_rank(group):
        part = parts[group.rank]
        root_id = torch.from_numpy(np.array(part.global_id[: part.num_roots]))
        exchange = Synchronous(group)
        return work(Roots(exchange, root_id, NUM_VERTICES), root_id, group)

    return run_ranks(num_parts, on_rank)


def asked_by(rank):
    """Vertices that a rank asks for: some twice, and none at all on rank 2."""
    rng = np.random.default_rng(rank)
    return torch.from_numpy(rng.integers(0, NUM_VERTICES, 0 if rank == 2 else 30))


@pytest.mark.parametrize(
    ("num_parts", "how"), [(1, "anywhere"), (2, "anywhere"), (3, "empty-part"), (7, "anywhere")]
)
def test_any_vertex_is_found(num_parts, how):
    def work(roots, root_id, group):
        ids = asked_by(group.rank)
        return root_id, ids, *roots.find(ids)

    found = on_ranks(num_parts, work, how)
    owned = [root_id for root_id, *_ in found]
    for _, ids, rank, row in found:
        at = [int(owned[r][n]) for r, n in zip(rank.tolist(), row.tolist(), strict=True)]
        assert at == ids.tolist()


@pytest.mark.parametrize(
    ("num_parts", "how"), [(1, "anywhere"), (3, "empty-part"), (4, "anywhere")]
)
def test_rows_are_fetched_and_their_gradients_added_up_at_the_roots(num_parts, how):
    table = torch.randn(NUM_VERTICES, 5, generator=torch.Generator().manual_seed(0))

    def weight_of(ids):
        return ids[:, None].float() + torch.arange(5)

    def work(roots, root_id, group):
        ids = asked_by(group.rank)
        fetch = Fetch(roots, ids)
        assert fetch.num_rows == len(set(ids.tolist()))
        own = table[root_id].clone().requires_grad_()
        rows = fetch.rows(own)[fetch.number.long()]
        assert torch.equal(rows, table[ids])
        (rows * weight_of(ids)).sum().backward()
        return root_id, own.grad, roots.exchange.take_bytes()

    found = on_ranks(num_parts, work, how)
    expected = torch.zeros(NUM_VERTICES, 5)
    for rank in range(num_parts):
        expected.index_add_(0, asked_by(rank), weight_of(asked_by(rank)))
    for root_id, grad, _ in found:
        torch.testing.assert_close(grad, expected[root_id])
    assert (sum(sent for *_, sent in found) > 0) == (num_parts > 1)
