"""A graph is the same however it is cut, and no other graph is."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from graphs import EDGE_KIND, KINDS, TYPED_KINDS, cut, make_graph

from distgnn.comm.threads import run_ranks
from distgnn.datasets.held_out import hold_out_links
from distgnn.partition.directory.whole import whole_part
from distgnn.training.data import identity
from distgnn.training.data.identity import identify_graph, layout_of

NUM_PARTS = 3


def identified(parts):
    found = run_ranks(len(parts), lambda group: identify_graph(parts[group.rank], group))
    assert all(one == found[0] for one in found)
    return found[0]


def test_links_that_are_held_out_are_part_of_it_wherever_they_lie():
    graph = hold_out_links(make_graph(), "0.7/0.1/0.2")
    expected = identified([whole_part(graph)])
    assert identified(cut(graph, NUM_PARTS)) == expected
    swapped = replace(graph, val_links=graph.test_links, test_links=graph.val_links)
    assert identified(cut(swapped, NUM_PARTS))["splits"] != expected["splits"]


@pytest.mark.parametrize("kind", [*KINDS, *TYPED_KINDS, EDGE_KIND])
def test_no_cut_changes_what_a_graph_is(kind, monkeypatch):
    graph = make_graph(kind)
    expected = identified([whole_part(graph)])
    assert (expected["num_vertices"], expected["num_edges"]) == (40, graph.num_edges)
    monkeypatch.setattr(identity, "_BLOCK", 7)
    for num_parts in (1, NUM_PARTS, 7):
        for how in ("anywhere", "destination", "empty-part"):
            assert identified(cut(graph, num_parts, how=how, seed=num_parts)) == expected


def test_edges_and_sparse_entries_may_come_in_any_order():
    graph = make_graph("sparse-features")
    turned = replace(graph, src=graph.src[::-1].copy(), dst=graph.dst[::-1].copy())
    assert identified(cut(turned, NUM_PARTS)) == identified(cut(graph, NUM_PARTS))
    dense = replace(graph, features=graph.features.toarray())
    assert identified(cut(dense, NUM_PARTS)) == identified(cut(graph, NUM_PARTS))


def altered(values, position, value):
    copy = values.copy()
    copy[position] = value
    return copy


CHANGES = {
    "edges": lambda g: {"src": altered(g.src, 3, (g.src[3] + 1) % 37)},
    "swapped ends": lambda g: {"src": g.dst, "dst": g.src},
    "rewired edges": lambda g: {"dst": altered(g.dst, [0, 1], g.dst[[1, 0]])},
    "features": lambda g: {"features": altered(g.features, (5, 1), 0.25)},
    "features of two vertices": lambda g: {"features": g.features[[1, 0, *range(2, 40)]]},
    "features of two columns": lambda g: {"features": g.features[:, [1, 0, 2, 3, 4, 5]].copy()},
    "labels": lambda g: {"labels": altered(g.labels, 7, (g.labels[7] + 1) % 3)},
    "splits": lambda g: {"val_mask": g.test_mask, "test_mask": g.val_mask},
}
NAMES = {"edges": "edges", "swapped ends": "edges", "rewired edges": "edges"}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_training_reads_tells_graphs_apart(change):
    graph = make_graph()
    before = identified(cut(graph, NUM_PARTS))
    after = identified(cut(replace(graph, **CHANGES[change](graph)), NUM_PARTS))
    changed = [name for name in before if before[name] != after[name]]
    assert changed == [NAMES.get(change, change.split()[0])]


def test_edge_weights_belong_to_the_edges():
    graph = make_graph("weighted")
    heavier = replace(graph, edge_weight=altered(graph.edge_weight, 0, 9.0))
    before, after = (identified(cut(one, NUM_PARTS)) for one in (graph, heavier))
    assert before["edges"] != after["edges"]


def test_features_belong_to_the_edges():
    graph = make_graph(EDGE_KIND)
    features = graph.edge_features
    for other in (altered(features, (0, 1), 9.0), features[:, [1, 0, 2]], features[::-1], None):
        changed = replace(graph, edge_features=other)
        before, after = (identified(cut(one, NUM_PARTS)) for one in (graph, changed))
        assert [key for key in before if before[key] != after[key]] == ["edges"]


@pytest.mark.parametrize(("name", "tells"), [("edge_type", "edges"), ("vertex_type", "features")])
def test_types_belong_to_edges_and_vertices(name, tells):
    graph = make_graph("typed")
    other = replace(graph, **{name: altered(getattr(graph, name), [0, 1, 2, 3], 1)})
    before, after = (identified(cut(one, NUM_PARTS)) for one in (graph, other))
    assert [key for key in before if before[key] != after[key]] == [tells]


def test_a_layout_is_that_of_one_part_of_one_partition():
    graph = make_graph()
    parts = cut(graph, NUM_PARTS)
    layouts = [layout_of(part) for part in parts]
    assert layouts == [layout_of(part) for part in cut(graph, NUM_PARTS)]
    others = [layout_of(part) for part in cut(graph, NUM_PARTS, seed=1)]
    assert len({*layouts, *others}) == 2 * NUM_PARTS


@pytest.mark.parametrize(
    "name", ["global_id", "is_reading", "is_writing", "send_rows", "reduce_rows", "indices"]
)
def test_every_array_that_places_a_row_is_part_of_the_layout(name):
    part = cut(make_graph(), NUM_PARTS)[0]
    values = {item.name: getattr(part, item.name) for item in fields(part)}
    values[name] = altered(values[name], 0, not values[name][0])
    assert layout_of(type(part)(**values)) != layout_of(part)
