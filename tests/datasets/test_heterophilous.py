from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distgnn import datasets
from distgnn.datasets import InputError


def arrays_of() -> dict[str, Any]:
    """Four vertices, two splits, each edge once."""
    turns = np.eye(4, dtype=bool)
    return {
        "node_features": np.arange(8, dtype=np.float32).reshape(4, 2),
        "node_labels": np.array([0, 1, 0, 1]),
        "edges": np.array([[0, 1], [1, 2], [1, 2], [3, 3]]),
        "train_masks": turns[:2] | turns[2:],
        "val_masks": turns[[1, 0]],
        "test_masks": turns[[3, 2]],
    }


def test_edges_get_both_directions_and_all_splits_are_kept(tmp_path: Path) -> None:
    np.savez(tmp_path / "tolokers.npz", **arrays_of())
    graph = datasets.load(tmp_path / "tolokers.npz")
    edges = list(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    assert edges == [(1, 0), (0, 1), (2, 1), (1, 2)]
    assert graph.num_splits == 2
    assert graph.num_features == 2
    assert graph.num_classes == 2
    assert graph.test_mask is not None
    assert np.argwhere(graph.test_mask).tolist() == [[0, 3], [1, 2]]


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"node_labels": None}, r"g\.npz: node_labels is missing; such a file has node_features, "),
    ({"test_masks": None}, "test_masks is missing"),
    ({"edges": np.array([[0, 9]])}, "edges has vertices from 0 to 9, but node_features has 4 rows"),
    ({"edges": np.array([[0, -1]])}, "edges has vertices from -1 to 0"),
    ({"edges": np.arange(6).reshape(2, 3)}, r"two vertices a row, got int64 of shape \(2, 3\)"),
    ({"edges": np.ones((2, 2))}, "edges must hold two vertices a row, got float64"),
    ({"node_features": np.array(1.0)}, r"node_features must have one row .*, got shape \(\)"),
    ({"node_labels": np.array([0, 1])}, r"labels must have shape \(4,\)"),
    ({"val_masks": arrays_of()["train_masks"]}, "is in both train_mask and val_mask"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES)
def test_wrong_files_are_one_sentence(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    arrays = {key: value for key, value in {**arrays_of(), **change}.items() if value is not None}
    np.savez(tmp_path / "g.npz", **arrays)
    with pytest.raises(InputError, match=message):
        datasets.load(tmp_path / "g.npz")
