"""Memory of K-FAC that is predicted, against the bytes that torch's allocator counts."""

from __future__ import annotations

import pytest
import torch
from graphs import cut, make_graph
from kfac_oracle import Terms

from distgnn.comm.single import SingleGroup
from distgnn.forecast.memory import moment_bytes
from distgnn.graph.local_graph import LocalGraph
from distgnn.nn.config import ModelConfig
from distgnn.nn.models import GNN
from distgnn.optim.described import describe_factors
from distgnn.optim.kfac import Kfac
from distgnn.optim.optimizers import NUM_MOMENTS
from distgnn.settings.kfac import KfacOptions

pytestmark = pytest.mark.usefixtures("multiplied_here")


def most_bytes(profiler):
    """The most bytes that were allocated at once since a profiler began."""
    results = getattr(profiler.profiler, "kineto_results", None)
    if results is None:
        pytest.skip("this torch does not show what its profiler recorded")
    events = results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


@pytest.mark.parametrize(
    ("width", "hidden", "widest"),
    [(320, 8, 2048), (24, 320, 2048), (400, 200, 100)],
)
@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_memory_of_kfac_is_that_of_the_allocator(model, width, hidden, widest):
    part = cut(make_graph("random"), 1)[0]
    graph = LocalGraph.exact(part, SingleGroup())
    rows = torch.randn(part.num_roots, width)
    made = GNN(ModelConfig(model=model, layers=2, hidden=hidden, dropout=0.0), width, 4)
    made.reset_parameters(torch.Generator().manual_seed(0))
    options = KfacOptions(widest=widest)
    described = describe_factors(
        made, options, is_sparse=False, is_static=False, is_fixed=False, is_repeated=False
    )
    predicted = described.num_bytes + moment_bytes(made, NUM_MOMENTS["kfac"])
    with torch.profiler.profile(
        profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]
    ) as profiler:
        optimizer = Kfac(made, Terms(SingleGroup(), part.num_roots), options=options)
        for _ in range(2):
            made(graph, rows).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            graph.end_epoch()
    measured = most_bytes(profiler)
    assert 0.6 * predicted < measured < 1.05 * predicted, (measured, predicted)
