from __future__ import annotations

import argparse
import json
import sys

import numpy as np
import pytest

from distgnn.bench import directories, markdown, peers
from distgnn.cli import bench_verb
from distgnn.datasets import Graph, InputError
from distgnn.partition import assign
from distgnn.partition.quality import measure
from distgnn.partition.trial import run as run_trial


def run(*arguments, what="partition"):
    parser = argparse.ArgumentParser()
    bench_verb.add_arguments(parser)
    return bench_verb.run(parser.parse_args([what, *arguments]))


def test_methods_are_compared_and_a_page_is_written(capsys, tmp_path):
    out = str(tmp_path / "results.json")
    twin = ("--shapes=arxiv", "--scale=0.002", "--parts=3")
    assert run(*twin, "--methods=random,metis", "--out", out) == 0
    output = capsys.readouterr()
    header, random, metis = (line.split() for line in output.out.splitlines())
    assert header[:4] == ["graph", "parts", "method", "halo/V"]
    assert random[:3] == ["arxiv-random", "3", "random"]
    assert metis[:3] == ["arxiv-random", "3", "metis"]
    assert float(metis[3]) < float(random[3])
    assert "arxiv-random: random, 3 parts" in output.err
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert [result["method"] for result in results] == ["random", "metis"]
    assert all(result["peak_rss_bytes"] > result["method_bytes"] > 0 for result in results)
    page = markdown.page([markdown.read(out)])
    assert f"| arxiv-random | 3 | metis | {metis[3]} |" in page


def test_a_method_is_compared_with_itself_refined(capsys):
    assert (
        run("--shapes=arxiv", "--scale=0.002", "--parts=3", "--methods=random,random+refine") == 0
    )
    _, plain, refined = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (plain[2], refined[2]) == ("random", "random+refine")
    assert float(refined[3]) < float(plain[3])


def test_graph_files_are_taken_and_a_failing_run_is_named(tmp_path):
    np.savez(tmp_path / "g.npz", edge_index=np.array([[0, 1], [1, 2]]), num_vertices=3)
    with pytest.raises(
        InputError, match="method 'random' on graph 'g' failed: more parts than vertices: num_parts"
    ):
        run(str(tmp_path / "g.npz"), "--methods=random", "--parts=4")


def test_a_run_whose_process_dies_is_named(tmp_path, monkeypatch):
    np.savez(tmp_path / "g.npz", edge_index=np.array([[0, 1], [1, 2]]), num_vertices=3)
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))
    with pytest.raises(InputError, match="method 'random' on graph 'g' ended with status 1"):
        run(str(tmp_path / "g.npz"), "--methods=random", "--parts=2")


def test_an_unknown_method_is_refused():
    with pytest.raises(InputError, match=r"must be of metis, .* without \+refine, got 'metiss'"):
        run("--methods=metiss")


def test_a_trial_counts_what_the_partition_costs(tmp_path):
    src, dst = np.arange(40), (np.arange(40) + 1) % 40
    np.savez(tmp_path / "g.npz", num_vertices=40, src=src, dst=dst)
    request = {"graph": "g", "edges": tmp_path / "g.npz", "seed": 0, "method": "ne", "parts": 4}
    found = run_trial({**request, "options": {"edge_balance": 1.0}, "refine": None})
    assert (found["num_vertices"], found["num_edges"], found["edge_balance"]) == (40, 40, 1.0)
    graph = Graph(name="g", num_vertices=40, src=src, dst=dst)
    quality = measure(graph, assign("ne", graph, 4, edge_balance=1.0))
    assert found["halo_rows"] == quality.halo_rows >= 4
    assert found["clone_balance"] == quality.clone_balance
    assert found["seconds"] > 0


def test_whole_programs_are_compared_and_a_page_is_written(capsys, tmp_path):
    out = str(tmp_path / "results.json")
    twin = ("--shapes=arxiv", "--scale=0.002", "--parts=2")
    assert run(*twin, "--methods=random", "--out", out, what="directories") == 0
    header, line = (line.split() for line in capsys.readouterr().out.splitlines())
    assert header[:4] == ["graph", "parts", "program", "seconds"]
    assert line[:3] == ["arxiv-random", "2", "random"]
    (result,) = json.loads((tmp_path / "results.json").read_text())["results"]
    assert result["num_edges"] * 4 < result["directory_bytes"] < result["peak_rss_bytes"]
    assert result["cpu_s"] > 0
    page = markdown.page([markdown.read(out)])
    assert f"| arxiv-random | 2 | random | {line[3]} |" in page


@pytest.mark.skipif("dgl" not in peers.installed(), reason="dgl is not installed")
@pytest.mark.parametrize("method", directories.PEERS)
def test_dgl_partitions_the_same_file(capsys, method):
    twin = ("--shapes=arxiv", "--scale=0.01", "--parts=2")
    assert run(*twin, f"--methods={method}", "--json", what="directories") == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert (result["method"], result["parts"]) == (method, 2)
    assert result["directory_bytes"] > result["num_edges"] * 4


def test_a_program_that_fails_is_named(tmp_path):
    np.savez(tmp_path / "g.npz", edge_index=np.array([[0, 1], [1, 2]]), num_vertices=3)
    with pytest.raises(InputError, match=r"random on graph 'g' ended with status 2 .*more parts"):
        run(str(tmp_path / "g.npz"), "--methods=random", "--parts=4", what="directories")


def test_an_unknown_program_is_refused():
    with pytest.raises(InputError, match=r"must be of metis, .* dgl-libra, got 'dgl-dbh'"):
        run("--methods=dgl-dbh", what="directories")


@pytest.mark.skipif("dgl" in peers.installed(), reason="dgl is installed")
def test_dgl_that_is_missing_is_named():
    with pytest.raises(InputError, match="method 'dgl-metis' needs the package dgl, which is not"):
        run("--methods=dgl-metis", what="directories")


def test_the_peak_of_a_program_is_its_own_and_not_that_of_who_starts_it():
    held = np.ones(1 << 26)
    used = directories.run_program([sys.executable, "-c", ""], {"method": "m", "graph": "g"})
    assert used["peak_rss_bytes"] < held.nbytes / 4
    assert used["cpu_s"] > 0
    assert used["seconds"] > 0
