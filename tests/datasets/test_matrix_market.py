from __future__ import annotations

import gzip
import logging
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from distgnn import datasets
from distgnn.datasets import InputError

HEAD = "%%MatrixMarket matrix coordinate "
SYMMETRIC = HEAD + "real symmetric\n% HipMCL\n4 4 3\n2 1 0.5\n3 1 0.25\n4 4 1\n"


def test_a_symmetric_matrix_gives_both_directions(tmp_path: Path) -> None:
    (tmp_path / "g.mtx").write_text(SYMMETRIC)
    with gzip.open(tmp_path / "g.mtx.gz", "wt") as file:
        file.write(SYMMETRIC)
    for name in ("g.mtx", "g.mtx.gz"):
        graph = datasets.load(tmp_path / name)
        assert graph.edge_weight is not None
        found = zip(graph.src.tolist(), graph.dst.tolist(), graph.edge_weight.tolist(), strict=True)
        expected = {(1, 0, 0.5), (0, 1, 0.5), (2, 0, 0.25), (0, 2, 0.25), (3, 3, 1.0)}
        assert set(found) == expected
        assert (graph.name, graph.num_vertices) == ("g", 4)


def test_patterns_have_no_weights(tmp_path: Path) -> None:
    (tmp_path / "g.mtx").write_text(HEAD + "pattern general\n3 3 2\n1 2\n2 3\n")
    graph = datasets.load(tmp_path / "g.mtx")
    assert graph.edge_weight is None
    assert (graph.src.tolist(), graph.dst.tolist()) == ([0, 1], [1, 2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello\n", r"g\.mtx is damaged or is no Matrix Market file"),
        (HEAD + "real general\n3 3 2\n1 2 1.0\n", "is damaged or is no Matrix Market file"),
        (HEAD + "real general\n3 3 1\n1 9 1.0\n", "is damaged or is no Matrix Market file"),
        (HEAD + "real general\n3 4 1\n1 1 1.0\n", r"is square, this one has \(3, 4\)"),
        (HEAD + "complex general\n2 2 1\n1 2 1.0 2.0\n", "weights are real numbers"),
        ("%%MatrixMarket matrix array real general\n1 1\n1.0\n", "holds a dense matrix"),
    ],
)
def test_wrong_files_are_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "g.mtx").write_text(text)
    with pytest.raises(InputError, match=message):
        datasets.load(tmp_path / "g.mtx")


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("end", ["", " ", "\n", " \n", "\n\n"])
def test_the_last_line_may_end_in_any_way(tmp_path: Path, end: str, suffix: str) -> None:
    text = (HEAD + "real general\n3 3 2\n1 2 1\n2 3 0.5" + end).encode()
    path = tmp_path / f"g.mtx{suffix}"
    path.write_bytes(gzip.compress(text) if suffix else text)
    assert datasets.load(path).num_edges == 2


@pytest.mark.parametrize("text", ["1 2 1\n2 3 0.5\0\n", "1 2 1\0\n2 3 0.5\n", "1 2 1\n2 3 0.5\0"])
def test_bytes_that_no_text_has_are_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "g.mtx").write_text(HEAD + "real general\n3 3 2\n" + text)
    message = r"g.mtx is damaged or is no Matrix Market file \(it has NUL bytes\)"
    with pytest.raises(InputError, match=message):
        datasets.load(tmp_path / "g.mtx")


def test_a_cut_archive_or_no_file_is_one_sentence(tmp_path: Path) -> None:
    data = gzip.compress(SYMMETRIC.encode())
    (tmp_path / "g.mtx.gz").write_bytes(data[:-12])
    with pytest.raises(InputError, match="is damaged or is no Matrix Market file"):
        datasets.load(tmp_path / "g.mtx.gz")
    (tmp_path / "g.mtx.gz").write_text(SYMMETRIC)
    with pytest.raises(InputError, match=r"no Matrix Market file \(Not a gzipped file"):
        datasets.load(tmp_path / "g.mtx.gz")
    with pytest.raises(InputError, match=r"there is no file .*none\.mtx"):
        datasets.load(tmp_path / "none.mtx")


@pytest.mark.parametrize(
    "name", ["proteins.mtx", "subgraph3_iso_vs_iso_30_70length_ALL.m100.propermm.mtx"]
)
def test_proteins_gets_distgnns_random_features_and_labels_and_says_so(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    matrix = scipy.sparse.random(2000, 2000, 0.01, random_state=0)
    scipy.io.mmwrite(tmp_path / name, matrix)
    with caplog.at_level(logging.WARNING, "distgnn"):
        graph = datasets.load(tmp_path / name)
    assert (graph.name, graph.num_edges) == ("proteins", matrix.nnz)
    assert (graph.num_features, graph.num_classes) == (128, 256)
    assert graph.edge_weight is None
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    assert [int(mask.sum()) for mask in masks if mask is not None] == [229, 1, 114]
    assert graph.train_mask is not None
    assert graph.train_mask[0, :229].all()
    assert "128 features and 256 classes are random, so take times from it" in caplog.text
    again = datasets.load(tmp_path / name)
    assert np.array_equal(np.asarray(graph.features), np.asarray(again.features))
    assert np.array_equal(np.asarray(graph.labels), np.asarray(again.labels))
