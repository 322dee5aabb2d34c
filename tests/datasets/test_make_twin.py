from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distgnn import datasets
from distgnn.datasets import InputError, streamed
from distgnn.datasets.disk import check_room
from distgnn.datasets.make_twin import ORDERS, make
from distgnn.datasets.streamed import TWINS

SCALE = 1 / 8192
NUM_VERTICES, NUM_EDGES = 13557, 197225


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def ends(folder: Path) -> tuple[Any, Any]:
    return np.load(folder / "src.npy"), np.load(folder / "dst.npy")


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("twin") / "papers"
    make("papers", folder, scale=SCALE, features="random")
    return folder


def test_a_twin_is_a_graph_to_train_on(papers: Path) -> None:
    graph = datasets.load(papers)
    assert (graph.num_vertices, graph.num_edges) == (NUM_VERTICES, NUM_EDGES)
    assert graph.num_features == 128
    assert graph.num_classes == 172
    assert not (graph.src == graph.dst).any()
    assert graph.labels is not None
    masks = [graph.train_mask, graph.val_mask, graph.test_mask]
    shares = [float(mask.mean()) for mask in masks if mask is not None]
    assert np.allclose(shares, TWINS["papers"].split, rtol=0.4)
    assert (graph.labels >= 0).sum() == sum(mask.sum() for mask in masks if mask is not None)


@pytest.mark.parametrize("threads", [2, 5])
def test_the_number_of_threads_does_not_matter(papers: Path, tmp_path: Path, threads: int) -> None:
    make("papers", tmp_path / "papers", scale=SCALE, features="random", threads=threads)
    assert contents(tmp_path / "papers") == contents(papers)


def test_another_seed_gives_another_graph(papers: Path, tmp_path: Path) -> None:
    make("papers", tmp_path / "papers", scale=SCALE, seed=1)
    assert contents(tmp_path / "papers")["src.npy"] != contents(papers)["src.npy"]


def test_sorted_and_reversed_files_have_the_same_edges(papers: Path, tmp_path: Path) -> None:
    for order in ORDERS[1:]:
        make("papers", tmp_path / order, scale=SCALE, order=order)
    src, dst = ends(papers)
    order = np.lexsort((dst, src))
    assert np.array_equal(ends(tmp_path / "sorted"), (src[order], dst[order]))
    assert np.array_equal(ends(tmp_path / "reversed"), (src[order[::-1]], dst[order[::-1]]))


def test_vertices_near_each_other_in_place_share_most_edges() -> None:
    graph = streamed.sketch(TWINS["papers"], 1 / 1024, seed=0)
    src, dst = streamed.edges(graph, 0)
    inverse = pow(streamed._factor(streamed._ID_FACTOR, graph.num_vertices), -1, graph.num_vertices)
    parts = [end * inverse % graph.num_vertices * 16 // graph.num_vertices for end in (src, dst)]
    # Blocks of the whole to one sixteenth, each halved once more than the block before.
    expected = 0.05 * sum(1 - 2.0**-k for k in range(1, 5))
    assert abs(float((parts[0] != parts[1]).mean()) - expected) < 0.08


def test_degrees_are_skewed() -> None:
    graph = streamed.sketch(TWINS["papers"], SCALE, seed=0)
    blocks = [streamed.edges(graph, block) for block in range(2)]
    src, dst = (np.concatenate(side) for side in zip(*blocks, strict=True))
    in_degree = np.bincount(dst, minlength=NUM_VERTICES)
    out_degree = np.bincount(src, minlength=NUM_VERTICES)
    assert src.size == NUM_EDGES
    assert in_degree.max() > 30 * in_degree.mean()
    assert 0.4 < float((in_degree == 0).mean()) < 0.6
    assert np.median(out_degree) < 0.5 * out_degree.mean()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "paper"}, "a twin must be one of papers, got 'paper'"),
        ({"order": "random"}, "order must be one of shuffled, sorted, reversed, got 'random'"),
        ({"features": "all"}, "features must be one of none, random, got 'all'"),
        ({"scale": 0.0}, "the scale must be above 0 and at most 1, got 0"),
        ({"scale": 1.5}, "the scale must be above 0 and at most 1, got 1.5"),
        (
            {"scale": 1e-9},
            "the scale 1e-09 gives 64 vertices, none of them in the .*_mask; .* such as 9e-05",
        ),
        ({"folder": "here"}, "here' exists; choose another folder or remove it"),
        ({"folder": "none/x"}, r"none/x' cannot be written: the folder '.*none' does not"),
    ],
)
def test_an_argument_that_is_not_allowed_is_an_input_error(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    (tmp_path / "here").mkdir()
    arguments = {"name": "papers", "folder": "new", "scale": SCALE, **changes}
    arguments["folder"] = tmp_path / arguments["folder"]
    with pytest.raises(InputError, match=message):
        make(**arguments)
    assert [file.name for file in tmp_path.iterdir()] == ["here"]


def test_a_disk_without_room_is_refused(tmp_path: Path) -> None:
    check_room(tmp_path / "x", 1 << 20)
    with pytest.raises(InputError, match=r"needs 1048576.0 GiB, but \d+.\d GiB are free"):
        check_room(tmp_path / "x", 1 << 50)
