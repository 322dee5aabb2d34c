"""Damaged and hostile files of every kind: the graph they hold, or one sentence."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
from fuzz.corpus import CORPUS, recipe
from fuzz.mutate import mutated, mutated_archive, mutated_array, mutated_json
from fuzz.oracle import add_note, check_sentence, draws, in_time

from distgnn.api import recipes
from distgnn.datasets import Graph, InputError, load
from distgnn.datasets.npz import read_npz, write_npz

if TYPE_CHECKING:
    import random
    from pathlib import Path

pytestmark = pytest.mark.slow


def damage(path: Path, draw: random.Random) -> str:
    """Change one file of a folder, or the file; return what was done."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    victim = draw.choice(files)
    content = victim.read_bytes()
    kinds = [mutated]
    if victim.suffix == ".npz":
        kinds += [mutated_archive] * 3
    elif victim.suffix == ".npy":
        kinds += [mutated_array] * 3
    elif victim.suffix == ".json":
        kinds += [mutated_json] * 3
    kind = draw.choice(kinds)
    victim.write_bytes(kind(content, draw))
    return f"{kind.__name__} of {victim.name}"


def same(first: Graph, second: Graph) -> None:
    """Check that two readings gave the same graph."""
    for name in ("src", "dst", "labels", "train_mask", "edge_weight", "edge_type", "vertex_id"):
        one, other = getattr(first, name), getattr(second, name)
        assert (one is None) == (other is None), name
        if one is not None:
            np.testing.assert_array_equal(one, other, err_msg=name)
    assert first.class_names == second.class_names


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", list(CORPUS))
def test_a_damaged_file_is_a_graph_or_a_sentence(kind: str, tmp_path: Path) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    (tmp_path / "sound").mkdir()
    sound = CORPUS[kind](tmp_path / "sound")
    load(sound)
    for seed, draw in draws(kind, 150):
        folder = tmp_path / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "sound", folder)
        path = folder / sound.relative_to(tmp_path / "sound")
        done = damage(path, draw)
        try:
            with in_time():
                graph = load(path)
                same(graph, load(path))
                write_npz(graph, tmp_path / "again.npz")
                same(graph, read_npz(tmp_path / "again.npz"))
        except InputError as error:
            check_sentence(str(error))
        except BaseException as error:
            add_note(error, f"{kind}, DISTGNN_FUZZ_SEED={seed}: {done}")
            raise


def test_a_damaged_recipe_is_a_recipe_or_a_sentence(tmp_path: Path) -> None:
    sound = recipe(tmp_path).read_bytes()
    path = tmp_path / "damaged.json"
    for _, draw in draws("recipe", 400):
        path.write_bytes(draw.choice((mutated, mutated_json))(sound, draw))
        try:
            with in_time():
                found = recipes.read(str(path))
                found.source_words()
        except InputError as error:
            check_sentence(str(error))
