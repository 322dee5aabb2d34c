from __future__ import annotations

import importlib.util
import math
import time

import pytest
import torch

from distgnn.bench import measure, peers, report, shapes
from distgnn.bench.cases import (
    HEADS_OPERATIONS,
    NUM_HEADS,
    PAIRS,
    SLOPE,
    Case,
    CaseInputs,
)
from distgnn.bench.ours import Ours
from distgnn.datasets import InputError


def inputs():
    return CaseInputs.of(shapes.make("arxiv", scale=1 / 1024, order="random"))


def make_race(**changes):
    given = {
        "shapes": ["arxiv"],
        "orders": ["random"],
        "scale": 1 / 1024,
        "operations": ["sum"],
        "directions": ["forward"],
        "widths": [16],
        "threads": [1],
        "peers": ["scipy"],
        "rounds": 3,
        "slow_s": 1.0,
    }
    return measure.KernelRace(**(given | changes))


def dense_heads(operation, x, y, given, rows):
    """Head by head, with a dense matrix of the weights of edges."""
    sources = given.indices.long()
    heads = x.view(x.shape[0], NUM_HEADS, -1)
    if operation == "sddmm":
        return (heads[sources] * y.view_as(heads)[rows]).sum(2)
    results = []
    for h in range(NUM_HEADS):
        weight = torch.zeros(given.num_vertices, given.num_vertices)
        weight[rows, sources] = given.head_weight[:, h]
        if operation == "attention":
            raw = given.source_score[sources, h] + given.target_score[rows, h]
            e = torch.full_like(weight, -math.inf)
            e[rows, sources] = torch.nn.functional.leaky_relu(raw, SLOPE)
            weight = e.softmax(1).nan_to_num()
        results.append(weight @ heads[:, h])
    return torch.cat(results, 1)


def dense_result(operation, direction, x, grad, given):
    """The result, or the gradient of x, by a dense matrix and autograd."""
    rows = torch.arange(given.num_vertices).repeat_interleave(given.indptr.diff())
    matrix = torch.zeros(given.num_vertices, given.num_vertices)
    matrix[rows, given.indices.long()] = {
        "mean": given.mean_weight,
        "weighted": given.weight,
    }.get(operation, torch.ones(given.num_edges))
    source = x.clone().requires_grad_()
    if operation in HEADS_OPERATIONS:
        result = dense_heads(operation, source, grad, given, rows)
    elif operation == "max":
        spread = torch.where(matrix[:, :, None] > 0, source[None], -math.inf)
        result = torch.where(matrix.sum(1)[:, None] > 0, spread.max(1).values, 0)
    else:
        result = matrix @ source
    return result if direction == "forward" else torch.autograd.grad(result, source, grad)[0]


@pytest.mark.parametrize("name", ["distgnn", *peers.NAMES])
@pytest.mark.parametrize(("operation", "direction"), PAIRS)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_a_contestant_computes_what_a_dense_matrix_does(name, operation, direction):
    if name != "distgnn" and name not in peers.installed():
        pytest.skip(f"needs {name}")
    given = inputs()
    generator = torch.Generator().manual_seed(1)
    x, grad = (torch.randn(given.num_vertices, 16, generator=generator) for _ in range(2))
    grad[given.indptr.diff() == 0] = 0
    runner = Ours(given) if name == "distgnn" else peers.runner(name, given)
    job = runner.job(Case(operation, direction, 16, 1), x, grad)
    if job is None:
        assert (name, operation) == ("scipy", "max") or operation in HEADS_OPERATIONS
        assert name not in ("distgnn", "dgl", "pyg")
        return
    expected = dense_result(operation, direction, x, grad, given)
    found = job().nan_to_num(neginf=0.0)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(job().nan_to_num(neginf=0.0), found)


def test_cells_hold_the_times_of_all_contestants():
    told = []
    cells = list(measure.measure(make_race(widths=[16, 64]), progress=told.append))
    assert [cell.width for cell in cells] == [16, 64]
    assert len(told) == 1
    assert told[0].startswith("arxiv-random: 661 vertices")
    for cell in cells:
        assert set(cell.ms) == {"distgnn", "roof", "distgnn-bf16", "scipy"}
        assert set(cell.rounds.values()) == {3}
        assert cell.differs == []
        values = cell.to_json()
        assert values["ratio"]["scipy"] == cell.ms["scipy"] / cell.ms["distgnn"]
        assert values["roof_share"] == cell.ms["roof"] / cell.ms["distgnn"]


def test_only_operations_with_a_backward_of_their_own_have_cells_of_it():
    race = make_race(operations=["sddmm", "attention"], directions=["forward", "backward"])
    pairs = [(case.operation, case.direction) for case in race.cases()]
    assert pairs == [("sddmm", "forward"), ("attention", "forward"), ("attention", "backward")]


def test_a_slow_contestant_runs_only_twice():
    cell = next(measure.measure(make_race(slow_s=0.0), progress=lambda line: None))
    assert set(cell.rounds.values()) == {2}


def test_threads_are_put_back(num_threads):
    list(measure.measure(make_race(threads=[2]), progress=lambda line: None))
    assert torch.get_num_threads() == num_threads


def test_an_unknown_peer_or_case_is_refused():
    with pytest.raises(InputError, match=r"a peer must be one of dgl, .*, got 'jax'"):
        peers.runner("jax", inputs())
    with pytest.raises(InputError, match="'sideways' must be one of forward, backward"):
        Case("sum", "sideways", 16, 1)
    with pytest.raises(InputError, match="'min' must be one of sum, mean, weighted, max"):
        Case("min", "forward", 16, 1)
    with pytest.raises(InputError, match="'sddmm' is compared forward, got 'backward'"):
        Case("sddmm", "backward", 16, 1)
    with pytest.raises(InputError, match="multiples of 4 heads for 'attention', got 18"):
        Case("attention", "forward", 18, 1)


@pytest.mark.skipif(importlib.util.find_spec("dgl") is not None, reason="dgl is installed")
def test_a_peer_that_is_not_installed_is_named():
    with pytest.raises(InputError, match="'dgl' needs the package dgl, which is not installed"):
        peers.runner("dgl", inputs())


def cell(width, ours, theirs, roof=None):
    ms = {"distgnn": ours, "scipy": theirs} | ({} if roof is None else {"roof": roof})
    return measure.Cell(
        shape="arxiv-random",
        operation="sum",
        direction="forward",
        width=width,
        threads=1,
        num_edges=1000,
        ms=ms,
        rounds=dict.fromkeys(ms, 5),
    )


def test_the_report_gives_geometric_means_and_names_what_is_slower():
    cells = [cell(16, 1.0, 8.0, roof=0.5), cell(64, 2.0, 1.0, roof=2.0)]
    assert report.means(cells) == [("sum", "forward", "1", "scipy", "2", "2.00", "0.50")]
    assert report.roof_shares(cells) == [("arxiv-random", "0.71", "0.50")]
    assert report.slower(cells) == [
        "arxiv-random sum forward width 64 threads 1: scipy takes 0.50 of our time"
    ]
    expected = ("arxiv-random", "sum", "forward", "16", "1", "1.00", "0.1", "0.50", "8.00", "-")
    assert report.row(cells[0], ["scipy", "dgl"]) == expected
    assert math.isnan(report.geometric_mean([]))


def test_cpu_clock_does_not_count_waiting():
    def waiting():
        time.sleep(0.05)
        return torch.zeros(1)

    for clock, is_waiting_counted in (("wall", True), ("cpu", False)):
        times, _ = measure.time_jobs({measure.OURS: waiting}, make_race(clock=clock))
        assert (min(times[measure.OURS]) >= 0.05) == is_waiting_counted
