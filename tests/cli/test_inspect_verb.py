from __future__ import annotations

import shutil

import numpy as np
import pytest

from distgnn.datasets import load
from distgnn.partition.assignment import Assignment
from distgnn.partition.quality import estimate, measure
from distgnn.partition.reuse import row_reuse
from distgnn.partition.store import read_part


@pytest.fixture
def measured(ring, ring_parts):
    """The quality, computed again from the parts themselves."""
    graph = load(ring)
    part_of_root = {}
    part_of_edge = {}
    for number in range(3):
        part = read_part(ring_parts, number)
        part_of_root |= dict.fromkeys(part.global_id[: part.num_roots].tolist(), number)
        for row in range(len(part.indptr) - 1):
            for source in part.indices[part.indptr[row] : part.indptr[row + 1]]:
                part_of_edge[int(part.global_id[source]), int(part.global_id[row])] = number
    edges = zip(graph.src.tolist(), graph.dst.tolist(), strict=True)
    edge_part = [part_of_edge[edge] for edge in edges]
    root_part = [part_of_root[vertex] for vertex in range(graph.num_vertices)]
    return measure(graph, Assignment(3, np.int32(edge_part), np.int32(root_part)))


def test_json_gives_the_quality_and_what_an_epoch_costs(distgnn, ring_parts, measured):
    found = distgnn("inspect", ring_parts, "--json", "--layers", "16,7").json
    for name in ("replication_factor", "halo_rows", "edge_balance", "vertex_balance"):
        assert found[name] == getattr(measured, name)
    assert found["halo_rows_at_destination"] >= found["halo_rows"]
    expected = estimate(measured, [16, 7], num_features=5)
    assert found["layer_widths"] == [16, 7]
    assert found["halo_bytes_per_epoch"] == expected.halo_bytes_per_epoch
    assert found["memory_bytes_per_rank"] == list(expected.memory_bytes)


def test_counts_in_json_are_of_the_whole_graph(distgnn, ring_parts):
    found = distgnn("inspect", ring_parts, "--json").json
    assert found["num_edges"] == 12
    assert sum(part["num_edges"] for part in found["parts"]) == 12
    assert "files" not in found


def test_people_see_the_same_numbers(distgnn, ring_parts, measured):
    printed = distgnn("inspect", ring_parts).out
    assert f"replication_factor  {measured.replication_factor:.3f}" in printed
    assert f"halo_rows           {measured.halo_rows} " in printed
    assert "ring, 12 vertices, 12 edges" in printed
    assert "metis, 3 parts, seed 0" in printed
    assert "order               auto\n" in printed


def test_reuse_is_estimated_for_each_part_at_the_widest_layer(distgnn, ring_parts):
    expected = [row_reuse(read_part(ring_parts, number), 16) for number in range(3)]
    assert (
        distgnn("inspect", ring_parts, "--json", "--layers", "16,7").json["row_reuse"] == expected
    )
    printed = distgnn("inspect", ring_parts, "--layers", "16,7").out
    assert f"reuse per rank   {min(expected):.1f} reads at least for each fetch" in printed
    header, *rows = printed[printed.index("part  edges") :].splitlines()[:4]
    assert header.split()[-1] == "reuse"
    assert [row.split()[-1] for row in rows] == [f"{value:.1f}" for value in expected]


@pytest.mark.parametrize("widths", ["0", "-3", "16,0"])
def test_widths_are_positive(widths, distgnn, ring_parts):
    sentence = distgnn("inspect", ring_parts, f"--layers={widths}").sentence
    assert sentence.startswith("layer widths must be positive, got [")


def test_verify_finds_an_altered_file(distgnn, ring_parts, here):
    shutil.copytree(ring_parts, here / "p")
    assert distgnn("inspect", "p", "--verify").status == 0
    file = here / "p/part-0001/features.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert distgnn("inspect", "p").status == 0
    sentence = distgnn("inspect", "p", "--verify").sentence
    assert "features.npy' was altered" in sentence


def test_a_hierarchical_partition_shows_rows_per_level(distgnn, ring):
    command = ("partition", ring, "--parts", 4, "--out", "h", "--method", "hierarchical")
    assert "halo_rows_per_level" in distgnn(*command, "--option", "levels=2x2").out
    found = distgnn("inspect", "h", "--json").json
    assert sum(found["halo_rows_per_level"]) == found["halo_rows"] >= 4
    assert len(found["halo_rows_per_level"]) == 2
