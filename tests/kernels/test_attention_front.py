from __future__ import annotations

import pytest
import torch
from fronts import Fronts

from distgnn.kernels import attention
from distgnn.kernels.dense import Finish

attention = Fronts(attention)

GRAPH = {"indptr": torch.tensor([0, 4, 4]), "indices": torch.zeros(4, dtype=torch.int32)}
EdgeMask = attention.EdgeMask
OF_EDGES = [
    ({"edge_score": torch.zeros(3, 2)}, "edge_score has the wrong number of rows, got 3, expected"),
    ({"edge_score": torch.zeros(4, 3)}, "edge_score has the wrong width, got 3, expected 2"),
    ({"mask": EdgeMask(torch.arange(3), 0, 0.5)}, "edge_key has the wrong length, got 3, expected"),
    ({"mask": EdgeMask(torch.arange(4), 0, 1.0)}, r"probability must be in \[0, 1\), got 1"),
]


def state(num_rows=2, num_heads=2, columns=6):
    zeros = [torch.zeros(num_rows, width) for width in (columns, num_heads, num_heads)]
    return dict(zip(("out", "maximum", "denominator"), zeros, strict=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(0, 6)}, "the edges read from no rows"),
        ({"x": torch.zeros(3, 5)}, "no multiple of the heads: remainder, got 1, expected 0"),
        ({"source_score": torch.zeros(3, 0)}, "the scores have no heads, expected at least 1"),
        ({"source_score": torch.zeros(4, 2)}, "source_score has the wrong number of rows, got 4"),
        ({"target_score": torch.zeros(3, 2)}, "target_score has the wrong number of rows, got 3"),
        ({"target_score": torch.zeros(2, 3)}, "target_score has the wrong width, got 3"),
        ({"out": torch.zeros(3, 6)}, "out has the wrong number of rows, got 3, expected 2"),
        ({"out": torch.zeros(2, 4)}, "out has the wrong width, got 4, expected 6"),
        ({"maximum": torch.zeros(3, 2)}, "maximum has the wrong number of rows, got 3"),
        ({"maximum": torch.zeros(2, 3)}, "maximum has the wrong width, got 3, expected 2"),
        ({"denominator": torch.zeros(2, 3)}, "denominator has the wrong width, got 3, expected 2"),
        *OF_EDGES,
    ],
)
def test_attention_over_arrays_that_do_not_fit_is_refused(changes, message):
    given = GRAPH | state() | {"x": torch.zeros(3, 6)}
    given |= {"source_score": torch.zeros(3, 2), "target_score": torch.zeros(2, 2)}
    with pytest.raises(ValueError, match=message):
        attention.attend(**(given | changes), slope=0.2, accumulate=False)


@pytest.mark.parametrize(
    ("received", "rows", "num_rows", "message"),
    [
        ((3, 8), 2, 2, "rows has the wrong length, got 2, expected 3"),
        ((2, 9), 2, 2, "received has the wrong width, got 9, expected 8"),
        ((2, 8), 2, 0, "the rows merged go to no rows"),
    ],
)
def test_merging_states_that_do_not_fit_is_refused(received, rows, num_rows, message):
    given = torch.zeros(received), torch.zeros(rows, dtype=torch.int32)
    with pytest.raises(ValueError, match=message):
        attention.merge_attention(*given, **state(num_rows))


def test_finishing_a_state_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="maximum has the wrong number of rows, got 3, expected 2"):
        attention.finish_attention(**(state() | {"maximum": torch.zeros(3, 2)}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"result": torch.zeros(3, 6)}, "result has the wrong number of rows, got 3, expected 2"),
        ({"result": torch.zeros(2, 5)}, "result has the wrong width, got 5, expected 6"),
        ({"finish": Finish(bias=torch.zeros(5))}, "bias has the wrong length, got 5, expected 6"),
        (
            {"finish": Finish(row_key=torch.arange(3), probability=0.5)},
            "row_key has the wrong length, got 3, expected 2",
        ),
        (
            {"finish": Finish(row_key=torch.arange(2), probability=1.0)},
            r"probability must be in \[0, 1\), got 1",
        ),
    ],
)
def test_what_follows_attention_and_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        attention.finish_attention(**(state() | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"result": torch.zeros(3, 6)}, "result has the wrong number of rows, got 3, expected 2"),
        ({"out": torch.zeros(3, 2)}, "out has the wrong number of rows, got 3, expected 2"),
        ({"out": torch.zeros(2, 4)}, "no multiple of the heads: remainder, got 2, expected 0"),
        ({"bias": torch.zeros(4)}, "bias has the wrong length, got 4, expected 6"),
    ],
)
def test_products_with_results_that_do_not_fit_are_refused(changes, message):
    given = {"grad": torch.zeros(2, 6), "result": torch.zeros(2, 6), "out": torch.zeros(2, 2)}
    with pytest.raises(ValueError, match=message):
        attention.attention_delta(**(given | changes))


def test_results_of_float64_are_not_stored_as_bfloat16():
    wide = {name: part.double() for name, part in state().items()}
    with pytest.raises(TypeError, match=r"result must be torch\.float64, got torch\.bfloat16"):
        attention.finish_attention(**wide, result=torch.zeros(2, 6, dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grad": torch.zeros(0, 6)}, "the edges read from no rows"),
        ({"position": torch.arange(3)}, "t_edge has the wrong length, got 3, expected 4"),
        ({"x": torch.zeros(3, 6)}, "x has the wrong number of rows, got 3, expected 2"),
        ({"source_score": torch.zeros(3, 2)}, "source_score has the wrong number of rows, got 3"),
        ({"target_score": torch.zeros(2, 2)}, "target_score has the wrong number of rows, got 2"),
        ({"target_score": torch.zeros(3, 1)}, "target_score has the wrong width, got 1"),
        ({"log_sum": torch.zeros(2, 2)}, "log_sum has the wrong number of rows, got 2"),
        ({"delta": torch.zeros(3, 1)}, "delta has the wrong width, got 1, expected 2"),
        ({"grad": torch.zeros(3, 4)}, "grad has the wrong width, got 4, expected 6"),
        ({"grad_x": torch.zeros(2, 4)}, "grad_x has the wrong width, got 4, expected 6"),
        ({"grad_source": torch.zeros(3, 2)}, "grad_source has the wrong number of rows, got 3"),
        ({"edge_grad": torch.zeros(3, 2)}, "edge_grad has the wrong number of rows, got 3"),
        ({"edge_grad": torch.zeros(4, 1)}, "edge_grad has the wrong width, got 1, expected 2"),
        *OF_EDGES,
    ],
)
def test_the_backward_of_attention_refuses_arrays_that_do_not_fit(changes, message):
    given = GRAPH | {"position": torch.arange(4), "x": torch.zeros(2, 6), "grad": torch.zeros(3, 6)}
    given |= {name: torch.zeros(3, 2) for name in ("target_score", "log_sum", "delta")}
    given |= {"source_score": torch.zeros(2, 2), "grad_source": torch.zeros(2, 2)}
    given |= {"grad_x": torch.zeros(2, 6), "edge_grad": torch.zeros(4, 2)}
    with pytest.raises(ValueError, match=message):
        attention.attend_backward(**(given | changes), slope=0.2, accumulate=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indptr": torch.empty(0, dtype=torch.int64)}, "indptr is empty, expected one more than"),
        ({"edge_value": torch.zeros(3, 2)}, "edge_value has the wrong number of rows, got 3"),
        ({"out": torch.zeros(3, 2)}, "out has the wrong number of rows, got 3, expected 2"),
        ({"out": torch.zeros(2, 3)}, "out has the wrong width, got 3, expected 2"),
    ],
)
def test_a_sum_of_edges_that_does_not_fit_is_refused(changes, message):
    given = {"indptr": GRAPH["indptr"], "edge_value": torch.zeros(4, 2), "out": torch.zeros(2, 2)}
    with pytest.raises(ValueError, match=message):
        attention.edge_sum(**(given | changes), accumulate=False)
