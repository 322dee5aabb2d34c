"""Rows and sources are numbered in 32 bits: more of them are refused, not counted wrongly."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from fronts import Fronts

from distgnn import _kernels, kernels
from distgnn.kernels import maxima

kernels = Fronts(kernels)
maxima = Fronts(maxima)

LIMIT = 2**31
EDGES = {"indptr": torch.tensor([0, 1]), "indices": torch.zeros(1, dtype=torch.int32)}
# Without columns, rows take no memory.
MANY_ROWS = torch.empty(LIMIT, 0)


def too_many(what):
    return re.escape(f"{what} are numbered in 32 bits: got {LIMIT}, expected less than {LIMIT}")


@pytest.mark.parametrize(
    "call",
    [
        lambda: kernels.spmm_sum(
            *EDGES.values(), None, MANY_ROWS, torch.empty(1, 0), accumulate=False
        ),
        lambda: maxima.spmm_extreme(
            **EDGES,
            x=MANY_ROWS,
            out=torch.empty(1, 0),
            source=torch.empty(1, 0, dtype=torch.int32),
            is_max=True,
        ),
        lambda: kernels.gather_rows(MANY_ROWS, EDGES["indices"], torch.empty(1, 0)),
        lambda: kernels.scatter_add_rows(torch.empty(1, 0), EDGES["indices"], MANY_ROWS),
        lambda: kernels.blend_rows(torch.empty(1, 0), EDGES["indices"], MANY_ROWS, weight=1),
    ],
    ids=["sum", "maximum", "gather", "scatter", "blend"],
)
def test_more_rows_than_there_are_numbers_for_are_refused(call):
    with pytest.raises(ValueError, match=too_many("rows")):
        call()


@pytest.fixture
def many(tmp_path):
    """Vectors as long as the limit, in files of nothing, of which hardly a page is read."""

    def vector(dtype, length):
        try:
            return np.memmap(tmp_path / np.dtype(dtype).name, dtype, "w+", shape=(length,))
        except OSError as error:
            return pytest.skip(f"needs a file system with sparse files: {error}")

    return vector


def test_a_graph_with_more_rows_than_numbers_is_refused(many):
    with pytest.raises(ValueError, match=too_many("rows of a graph")):
        _kernels.extreme_scratch(
            many(np.int64, LIMIT + 1), np.empty(0, np.int32), num_rows=0, width=1
        )


def test_maxima_of_more_sources_than_numbers_are_not_merged(many):
    values, numbers = np.empty((1, 1), np.float32), np.empty((1, 1), np.int32)
    with pytest.raises(ValueError, match=too_many("sources")):
        _kernels.merge_max(
            values,
            numbers,
            values,
            numbers,
            source_id=many(np.int64, LIMIT),
            first_source=0,
        )


@pytest.mark.parametrize("what", ["sources", "rows received"])
def test_maxima_that_arrive_are_merged_below_the_limit_only(what, many):
    num_received = LIMIT if what == "rows received" else 1
    with pytest.raises(ValueError, match=too_many(what)):
        _kernels.merge_received_max(
            np.empty((1, 0), np.float32),
            np.empty((1, 0), np.int32),
            many(np.int32, num_received),
            np.empty((num_received, 0), np.float32),
            np.empty((num_received, 0), np.int64),
            source_id=many(np.int64, LIMIT if what == "sources" else 1),
        )


def test_a_walk_order_for_more_sources_than_numbers_is_refused():
    with pytest.raises(ValueError, match=too_many("sources")):
        kernels.WalkOrder(**EDGES, num_sources=LIMIT)


def test_one_row_fewer_than_the_limit_is_summed():
    out = torch.empty(1, 0)
    kernels.spmm_sum(*EDGES.values(), None, torch.empty(LIMIT - 1, 0), out, accumulate=False)
