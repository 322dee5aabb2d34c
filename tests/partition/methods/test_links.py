"""Links that are held out: where parts and partition directories have them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from graphs import cut, make_graph

from distgnn.datasets import InputError
from distgnn.datasets.held_out import hold_out_links
from distgnn.partition import assign
from distgnn.partition.directory.store import read_manifest, read_part, write
from distgnn.partition.directory.whole import whole_part
from distgnn.partition.large.source import open_folder
from distgnn.partition.quality import measure
from distgnn.partition.repartition.repartition import Wish, repartition

NAMES = ("val_links", "test_links")


@pytest.fixture
def graph():
    return hold_out_links(make_graph(), "0.7/0.1/0.2")


def store(folder, graph, num_parts):
    assignment = assign("random", graph, num_parts, seed=2)
    quality = measure(graph, assignment)
    write(folder, graph, assignment, method="random", options={}, seed=2, quality=quality)
    manifest = read_manifest(folder)
    return manifest, [read_part(folder, number) for number in range(num_parts)]


def rows_of(links):
    return sorted(map(tuple, links.tolist()))


def check_links(parts, graph):
    for name in NAMES:
        found = np.concatenate([getattr(part, name) for part in parts])
        assert rows_of(found) == rows_of(getattr(graph, name))
        for part in parts:
            assert np.isin(getattr(part, name)[:, 0], part.global_id[: part.num_roots]).all()


def test_each_link_lies_with_the_root_of_its_first_end(graph):
    check_links([whole_part(graph)], graph)
    check_links(cut(graph, 3), graph)
    check_links(cut(graph, 4, how="empty-part"), graph)


def test_a_directory_holds_them_and_other_parts_keep_them(graph, tmp_path):
    manifest, parts = store(tmp_path / "three", graph, 3)
    assert manifest.has_links
    check_links(parts, graph)
    repartition(tmp_path / "three", tmp_path / "two", Wish(num_parts=2), available=lambda: 1 << 30)
    check_links([read_part(tmp_path / "two", number) for number in range(2)], graph)


def test_a_graph_without_them_has_none(tmp_path):
    manifest, parts = store(tmp_path / "p", make_graph(), 2)
    assert not manifest.has_links
    assert parts[0].test_links is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("parts", [(1,), (0, 1)])
def test_a_manifest_without_links_of_one_part_or_split_is_refused(graph, tmp_path, name, parts):
    store(tmp_path / "p", graph, 2)
    manifest = json.loads((tmp_path / "p/manifest.json").read_text())
    for part in parts:
        del manifest["files"][f"part-000{part}/{name}.npy"]
    (tmp_path / "p/manifest.json").write_text(json.dumps(manifest))
    expected = f"it lists links that are held out, but not 'part-000{parts[0]}/{name}.npy'; parti"
    with pytest.raises(InputError, match=expected):
        read_manifest(tmp_path / "p")


def test_a_link_that_leads_outside_the_graph_is_refused(graph, tmp_path):
    graph.test_links[0, 1] = 40  # after the graph was checked
    with pytest.raises(InputError, match=r"test_links holds \d+..40, but may hold 0..39"):
        store(tmp_path / "p", graph, 1)


def test_edges_on_disk_hold_no_links_out(graph, tmp_path):
    np.save(tmp_path / "test_links.npy", graph.test_links)
    with pytest.raises(InputError, match=r"has test_links.npy, but graphs that hold links out are"):
        open_folder(tmp_path)
