"""Graph files with flipped bytes: a sound graph or an InputError, never else."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.datasets import Graph, InputError
from distgnn.datasets.npz import read_npz, write_npz

BYTES = st.integers(0, 255) | st.sampled_from(b"0123456789'(),<>|fiubUOSVcmM{}[]\\\n ")


@pytest.fixture(scope="module", params=["dense", "sparse"])
def members(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound file whose members are stored as they are, so that flips reach the arrays."""
    generator = np.random.default_rng(4)
    src, dst = generator.integers(0, 8, (2, 20))
    features = generator.random((8, 3), dtype=np.float32)
    graph = Graph(
        name="g",
        num_vertices=8,
        src=src,
        dst=dst,
        features=sp.csr_matrix(features) if request.param == "sparse" else features,
        labels=np.arange(8) % 3,
        **{f"{key}_mask": np.arange(8) % 3 == k for k, key in enumerate(("train", "val", "test"))},
        edge_weight=generator.random(20, dtype=np.float32),
        vertex_id=np.array([f"v{v}" for v in range(8)]),
        class_names=("a", "b", "c"),
    )
    folder = tmp_path_factory.mktemp("npz")
    write_npz(graph, folder / "compressed.npz")
    with np.load(folder / "compressed.npz") as arrays:
        np.savez(folder / "sound.npz", **arrays)
    return folder / "sound.npz"


def flip(content: bytes, data: st.DataObject, most: int) -> bytes:
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, min(most, len(damaged)) - 1))] = data.draw(BYTES)
    return bytes(damaged)


def assert_sound_or_refused(path: Path) -> None:
    try:
        graph = read_npz(path)
    except InputError as error:
        sentence = str(error)
    else:
        sentence = f"{path} {graph.num_classes} {graph.num_features}"
        write_npz(graph, path)
        assert read_npz(path).num_edges == graph.num_edges
    assert str(path) in sentence


@settings(max_examples=200, derandomize=True)
@given(data=st.data())
def test_flipped_bytes_of_the_archive(members: Path, data: st.DataObject) -> None:
    path = members.with_name("damaged.npz")
    path.write_bytes(flip(members.read_bytes(), data, 1 << 30))
    assert_sound_or_refused(path)


@settings(max_examples=400, derandomize=True)
@given(data=st.data())
def test_flipped_bytes_of_an_array_whose_checksum_is_right(
    members: Path, data: st.DataObject
) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(members) as sound, zipfile.ZipFile(archive, "w") as damaged:
        names = sound.namelist()
        victim = data.draw(st.sampled_from(names))
        for name in names:
            content = sound.read(name)
            most = data.draw(st.sampled_from([128, 1 << 30])) if name == victim else 0
            damaged.writestr(name, flip(content, data, most) if most else content)
    path = members.with_name("damaged.npz")
    path.write_bytes(archive.getvalue())
    assert_sound_or_refused(path)
