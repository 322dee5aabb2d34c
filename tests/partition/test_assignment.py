from __future__ import annotations

import numpy as np
import pytest

from distgnn.datasets import Graph, InputError
from distgnn.partition.assignment import Assignment
from distgnn.partition.build import build_parts
from distgnn.partition.quality import measure

NO_PARTS = np.zeros(0, np.int32)


def test_no_parts_are_refused() -> None:
    with pytest.raises(InputError, match="num_parts must be at least 1, got 0"):
        Assignment(0, NO_PARTS, NO_PARTS)


@pytest.mark.parametrize("parts", [np.zeros(2, np.int64), np.zeros((2, 1), np.int32)])
def test_other_dtypes_and_shapes_are_refused(parts: np.ndarray) -> None:
    with pytest.raises(InputError, match="edge_part must be a one-dimensional int32 array, got"):
        Assignment(2, parts, NO_PARTS)


@pytest.mark.parametrize("part", [-1, 2])
def test_parts_that_do_not_exist_are_refused(part: int) -> None:
    with pytest.raises(InputError, match=r"root_part names parts .*; parts are numbered 0\.\.1"):
        Assignment(2, NO_PARTS, np.array([part], np.int32))


@pytest.mark.parametrize("use", [measure, build_parts])
def test_an_assignment_of_another_graph_is_refused(use: object) -> None:
    graph = Graph(name="g", num_vertices=2, src=np.array([0]), dst=np.array([1]))
    wrong = Assignment(1, np.zeros(3, np.int32), np.zeros(2, np.int32))
    with pytest.raises(InputError, match="edge_part has 3 entries, but graph 'g' needs 1"):
        use(graph, wrong)  # type: ignore[operator]
