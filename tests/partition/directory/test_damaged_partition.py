"""Partition directories that were edited or damaged: a usable part or an InputError, never else."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.datasets import Graph, InputError
from distgnn.partition import assign
from distgnn.partition.directory.store import (
    is_partition_directory,
    read_manifest,
    read_part,
    write,
)
from distgnn.partition.quality import measure

NUM_PARTS = 2


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = np.random.default_rng(3)
    src, dst = generator.integers(0, 9, (2, 25))
    graph = Graph(
        name="example",
        num_vertices=9,
        src=src,
        dst=dst,
        features=generator.random((9, 3), dtype=np.float32),
        labels=np.arange(9) % 3,
        **{f"{key}_mask": np.arange(9) % 3 == k for k, key in enumerate(("train", "val", "test"))},
        vertex_id=np.array([f"v{v}" for v in range(9)]),
    )
    folder = tmp_path_factory.mktemp("original") / "parts"
    assignment = assign("metis", graph, NUM_PARTS)
    quality = measure(graph, assignment)
    options = {"objective": "volume", "edge_balance": 1.1}
    write(folder, graph, assignment, method="metis", options=options, seed=0, quality=quality)
    return folder


@pytest.fixture(scope="module")
def damaged(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy that every example of a test damages anew."""
    return Path(shutil.copytree(original, tmp_path_factory.mktemp("damaged") / "parts"))


def use(folder: Path) -> str:
    """Do all that inspect and a rank do with a partition; return the error's sentence."""
    try:
        manifest = read_manifest(folder)
        estimate = manifest.estimate([8, 4])
        assert min(estimate.memory_bytes) >= 0
        assert np.isfinite(manifest.quality["edge_balance"])
        json.dumps(manifest.to_json(), allow_nan=False)
        for part in range(manifest.num_parts):
            read_part(folder, part, manifest=manifest)
    except InputError as error:
        return str(error)
    return ""


def assert_helpful(sentence: str, folder: Path) -> None:
    if sentence:
        assert str(folder) in sentence
        assert "partition the graph again" in sentence


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in parsed JSON, as keys and positions from the top."""
    if not isinstance(value, dict | list):
        return [path]
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    below = [place for key, item in inner for place in places(item, (*path, key))]
    return [path, *below]


def deep(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


WRONG = (
    None, True, "", "many", "\x00", -1, 0, 1, 7, 10**9, 2**62, 2**63, 10**30, -(2**70), 0.5, -0.5,
    1e308, float("nan"), float("inf"), [], {}, [1, [2]], {"a": 1}, ["1", "2"], [None], [0.5, 1],
    [2**63], [[1, 2], [3, 4]], deep(60),
)  # fmt: skip


@settings(max_examples=300, derandomize=True)
@given(data=st.data())
def test_an_edited_manifest_gives_a_result_or_an_input_error(
    original: Path, damaged: Path, data: st.DataObject
) -> None:
    values: Any = json.loads((original / "manifest.json").read_text())
    for _ in range(data.draw(st.integers(1, 2))):
        known = places(values)[1:]
        if not known:
            break
        *above, last = data.draw(st.sampled_from(known))
        owner = values
        for key in above:
            owner = owner[key]
        if data.draw(st.booleans()):
            owner[last] = copy.deepcopy(data.draw(st.sampled_from(WRONG)))
        else:
            del owner[last]
    (damaged / "manifest.json").write_text(json.dumps(values))
    assert_helpful(use(damaged), damaged)


@pytest.mark.parametrize("depth", [990, 100_000])
@pytest.mark.parametrize("field", ["", "options", "format_version", "quality"])
def test_a_deeply_nested_manifest_is_an_error(
    original: Path, damaged: Path, depth: int, field: str
) -> None:
    nested = "[" * depth + "]" * depth
    text = (original / "manifest.json").read_text()
    if field:
        text = json.dumps({**json.loads(text), field: None}).replace(
            f'"{field}": null', f'"{field}": {nested}'
        )
    (damaged / "manifest.json").write_text(text if field else nested)
    assert_helpful(use(damaged) or "accepted", damaged)
    is_partition_directory(damaged)


@settings(max_examples=400, derandomize=True)
@given(data=st.data())
def test_a_damaged_array_with_a_true_checksum_gives_a_result_or_an_input_error(
    original: Path, damaged: Path, data: st.DataObject
) -> None:
    manifest = json.loads((original / "manifest.json").read_text())
    relative = data.draw(st.sampled_from(sorted(manifest["files"])))
    content = bytearray((original / relative).read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        # Numbers and punctuation keep the header readable, but with another meaning.
        byte = st.integers(0, 255) | st.sampled_from(b"0123456789'(),<>|fiubUO{}[]\\\n ")
        content[data.draw(st.integers(0, min(127, len(content) - 1)))] = data.draw(byte)
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    manifest["files"][relative] = {
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    (damaged / "manifest.json").write_text(json.dumps(manifest))
    (damaged / relative).write_bytes(content)
    try:
        assert_helpful(use(damaged), damaged)
    finally:
        shutil.copy(original / relative, damaged / relative)
