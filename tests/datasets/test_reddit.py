from __future__ import annotations

import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from distgnn import datasets
from distgnn.datasets import InputError

ADJACENCY = scipy.sparse.coo_matrix(([1, 1, 1, 1], ([0, 1, 1, 2], [1, 0, 2, 1])), shape=(4, 4))


def write(folder: Path, *, form: str = "coo", **change: Any) -> Path:
    """The two archives as DGL publishes them."""
    arrays: dict[str, Any] = {
        "feature": np.arange(12, dtype=np.float64).reshape(4, 3),
        "label": np.array([0, 1, 1, 0], dtype=np.int32),
        "node_ids": np.arange(4),
        "node_types": np.array([1, 2, 3, 1]),
        **change,
    }
    folder.mkdir(exist_ok=True)
    np.savez(folder / "reddit_data.npz", **{k: v for k, v in arrays.items() if v is not None})
    scipy.sparse.save_npz(folder / "reddit_graph.npz", ADJACENCY.asformat(form))
    return folder


def zipped(folder: Path, *, prefix: str = "") -> Path:
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, prefix + file.name)
    return path


@pytest.mark.parametrize("form", ["coo", "csr"])
def test_the_folder_and_the_zip_file_are_read_alike(tmp_path: Path, form: str) -> None:
    folder = write(tmp_path / "reddit", form=form)
    archives = [zipped(folder), zipped(folder, prefix="reddit/")]
    for path in (folder, *archives):
        graph = datasets.load(path)
        assert graph.name == "reddit"
        edges = set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
        assert edges == {(0, 1), (1, 0), (1, 2), (2, 1)}
        assert graph.num_features == 3
        assert graph.labels is not None
        assert graph.labels.tolist() == [0, 1, 1, 0]
        masks: list[Any] = [graph.train_mask, graph.val_mask, graph.test_mask]
        assert [np.flatnonzero(mask[0]).tolist() for mask in masks] == [[0, 3], [1], [2]]
        assert len(graph.checksum) == 64


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"node_types": None}, r"reddit: reddit_data\.npz has no array 'node_types' among feature"),
    ({"feature": np.ones((3, 3))}, r"features must have shape \(4, num_features\)"),
    ({"label": np.array([0, 1])}, r"labels must have shape \(4,\)"),
    ({"node_types": np.array([1, 1, 3, 1])}, "val_mask"),
    ({"feature": np.array([None])}, r"reddit_data\.npz: feature cannot be read .*Python objects"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES[:3] + MISTAKES[4:])
def test_wrong_files_are_one_sentence(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        datasets.load(write(tmp_path / "reddit", **change))


def test_cut_files_are_one_sentence(tmp_path: Path) -> None:
    folder = write(tmp_path / "reddit")
    whole = zipped(folder)
    data = (folder / "reddit_graph.npz").read_bytes()
    (folder / "reddit_graph.npz").write_bytes(data[:-40])
    with pytest.raises(InputError, match=r"reddit_graph\.npz: this is not an .npz file"):
        datasets.load(folder)
    with pytest.raises(InputError, match=r"reddit_graph\.npz is no \.npz archive"):
        datasets.load(zipped(folder))
    write(folder)
    whole = zipped(folder)
    np.savez(folder / "reddit_graph.npz", shape=np.array([4, 4]))
    with pytest.raises(
        InputError, match=r"reddit_graph\.npz: the array 'format' of a matrix is mi"
    ):
        datasets.load(folder)
    content = bytearray(whole.read_bytes())
    content[200:260] = bytes(60)
    whole.write_bytes(content)
    with pytest.raises(InputError, match=r"reddit_data\.npz cannot be read .*fetch the zip file"):
        datasets.load(whole)


def test_a_zip_file_that_zipfile_unpacks_without_limit_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "reddit")
    with zipfile.ZipFile(tmp_path / "reddit.zip", "w", zipfile.ZIP_BZIP2) as packed:
        for file in folder.iterdir():
            packed.write(file, file.name)
    message = r"reddit_data\.npz cannot be read \(it is compressed by method 12, not by deflate\)"
    with pytest.raises(InputError, match=message):
        datasets.load(tmp_path / "reddit.zip")


def test_no_more_is_unpacked_than_a_zip_file_tells(tmp_path: Path) -> None:
    path, told, held = tmp_path / "reddit.zip", 98_765, 1 << 26
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("reddit_data.npz", bytes(held))
        packed.writestr("reddit_graph.npz", b"")
    content = path.read_bytes()
    path.write_bytes(content.replace(held.to_bytes(4, "little"), told.to_bytes(4, "little")))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"reddit_data\.npz cannot be read \(Bad CRC-32"):
            datasets.load(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
