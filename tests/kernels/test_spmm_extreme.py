from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from fronts import Fronts

from distgnn import _kernels
from distgnn.kernels import maxima

maxima = Fronts(maxima)

WIDTHS = [1, 3, 7, 16, 17, 33, 100, 602]
CASES = {
    "no rows": (0, 3, 0),
    "no edges": (5, 4, 0),
    "short rows": (50, 20, 80),
    "long rows": (4, 30, 300),
}
VALUES = {
    "numbers and ties": [-np.inf, -1, 0, -0.0, 2, np.inf],
    "nan": [-np.inf, -1, 0, 2, np.inf, np.nan],
}


def extreme_of(graph, x, *, is_max):
    shape = (graph.indptr.size - 1, x.shape[1])
    out, source = np.full(shape, 7, x.dtype), np.full(shape, 7, np.int32)
    arrays = (graph.indptr, graph.indices, x, out)
    maxima.spmm_extreme(
        *(torch.from_numpy(part) for part in arrays),
        source=torch.from_numpy(source),
        is_max=is_max,
    )
    return out, source


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("is_max", [True, False])
def test_extreme_finds_value_and_source_of_the_reference(case, values, dtype, is_max):
    num_rows, num_sources, num_edges = CASES[case]
    graph = reference.random_csr(num_rows, num_sources, num_edges, seed=1)
    rng = np.random.default_rng(2)
    for width in WIDTHS:
        x = rng.choice(np.array(VALUES[values], dtype), (num_sources, width))
        out, source = extreme_of(graph, x, is_max=is_max)
        expected = reference.spmm_extreme(graph, x, is_max=is_max)
        np.testing.assert_array_equal(out, expected[0])
        np.testing.assert_array_equal(source, expected[1])


@pytest.mark.parametrize("width", [16, 47, 64])
@pytest.mark.parametrize("offset", [1, 4, 15])
def test_rows_of_an_extreme_may_begin_anywhere_on_a_cache_line(width, offset):
    graph = reference.random_csr(200, 90, 1500, seed=6)
    padded = np.random.default_rng(7).standard_normal(90 * width + 32).astype(np.float32)
    first = (-padded.ctypes.data // 4) % 16 + offset
    x = padded[first : first + 90 * width].reshape(90, width)
    assert x.ctypes.data % 64 == 4 * offset
    out, source = extreme_of(graph, x, is_max=True)
    expected = reference.spmm_extreme(graph, x, is_max=True)
    np.testing.assert_array_equal(out, expected[0])
    np.testing.assert_array_equal(source, expected[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("num_edges", [300, 9000])
@pytest.mark.parametrize("accumulate", [False, True])
def test_backward_gives_each_gradient_to_its_source(dtype, num_edges, accumulate, num_threads):
    """Few edges are gathered, many scattered; parallel edges count once."""
    rng = np.random.default_rng(3)
    graph = reference.random_csr(60, 25, num_edges, seed=4)
    transposed = reference.transpose(graph, 25)
    for width in WIDTHS:
        x = rng.standard_normal((25, width)).astype(dtype)
        grad = rng.standard_normal((60, width)).astype(dtype)
        out = rng.standard_normal((25, width)).astype(dtype)
        start = out.copy() if accumulate else np.zeros_like(out)
        _, source = extreme_of(graph, x, is_max=True)
        arrays = (transposed.indptr, transposed.indices, source, grad)
        maxima.spmm_extreme_backward(
            *(torch.from_numpy(part) for part in arrays),
            out=torch.from_numpy(out),
            accumulate=accumulate,
        )
        np.testing.assert_array_equal(out, reference.spmm_extreme_backward(source, grad, start))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(0, 2)}, "the edges read from no rows"),
        ({"out": torch.zeros(3, 2)}, "out has the wrong number of rows, got 3, expected 2"),
        ({"out": torch.zeros(2, 3)}, "out has the wrong width, got 3, expected 2"),
        (
            {"source": torch.zeros(2, 3, dtype=torch.int32)},
            "source has the wrong width, got 3, expected 2",
        ),
    ],
)
def test_an_extreme_over_arrays_that_do_not_fit_is_refused(changes, message):
    given = {
        "indptr": torch.tensor([0, 4, 4]),
        "indices": torch.zeros(4, dtype=torch.int32),
        "x": torch.zeros(3, 2),
        "out": torch.zeros(2, 2),
        "source": torch.zeros(2, 2, dtype=torch.int32),
    }
    with pytest.raises(ValueError, match=message):
        maxima.spmm_extreme(**(given | changes), is_max=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grad": torch.zeros(0, 2)}, "the edges read from no rows"),
        ({"grad": torch.zeros(2, 3)}, "source has the wrong width, got 2, expected 3"),
        ({"out": torch.zeros(3, 2)}, "out has the wrong number of rows, got 3, expected 2"),
        ({"out": torch.zeros(2, 3)}, "out has the wrong width, got 3, expected 2"),
    ],
)
def test_the_backward_of_an_extreme_refuses_arrays_that_do_not_fit(changes, message):
    given = {
        "indptr": torch.tensor([0, 4, 4]),
        "indices": torch.zeros(4, dtype=torch.int32),
        "source": torch.zeros(2, 2, dtype=torch.int32),
        "grad": torch.zeros(2, 2),
        "out": torch.zeros(2, 2),
    }
    with pytest.raises(ValueError, match=message):
        maxima.spmm_extreme_backward(**(given | changes), accumulate=False)


def test_scratch_that_is_too_short_is_refused():
    t_indptr, t_indices = torch.tensor([0, 40]), torch.zeros(40, dtype=torch.int32)
    with pytest.raises(ValueError, match="scratch is too short, got 3, expected 4"):
        _kernels.spmm_extreme_backward(
            t_indptr,
            t_indices,
            torch.zeros(1, 2, dtype=torch.int32),
            torch.zeros(1, 2),
            out=torch.zeros(1, 2),
            scratch=torch.zeros(3),
            accumulate=False,
        )
