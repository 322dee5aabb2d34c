from __future__ import annotations

import numpy as np
import pytest

from distgnn.datasets import load
from distgnn.datasets.cleaning import deduplicate
from distgnn.datasets.graph import Graph
from distgnn.partition import METHODS, assign
from distgnn.partition.directory.store import read_manifest, read_part
from distgnn.partition.orders import ORDERS, arrange


@pytest.mark.parametrize("method", METHODS)
def test_every_method_writes_a_partition_that_can_be_read(method, distgnn, ring):
    outcome = distgnn("partition", ring, "--parts", 3, "--out", "p", "--method", method)
    assert outcome.status == 0
    manifest = read_manifest("p")
    assert (manifest.method, manifest.num_parts, manifest.num_vertices) == (method, 3, 12)
    roots = np.concatenate([part.global_id[: part.num_roots] for part in parts_of("p", 3)])
    assert sorted(roots.tolist()) == list(range(12))


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_is_recorded_and_kept(order, distgnn, ring):
    command = ("partition", ring, "--parts", 3, "--out", "p", "--order", order, "--json")
    assert distgnn(*command, "--seed", 2).json["order"] == order
    graph = load(ring)
    arranged = arrange(order, graph, assign("metis", graph, 3, seed=2), seed=2)
    roots = np.concatenate([part.global_id[: part.num_roots] for part in parts_of("p", 3)])
    assert np.array_equal(roots, arranged)


def parts_of(directory, num_parts):
    return [read_part(directory, part) for part in range(num_parts)]


def test_the_same_seed_gives_the_same_files(distgnn, ring):
    for out, seed in (("a", 3), ("b", 3), ("c", 4)):
        command = ("partition", ring, "--parts", 3, "--out", out, "--method", "random")
        assert distgnn(*command, "--seed", seed).status == 0
    assert read_manifest("a").files == read_manifest("b").files
    assert read_manifest("a").files != read_manifest("c").files


def test_json_has_the_quality_the_directory_and_the_time(distgnn, ring):
    found = distgnn("partition", ring, "--parts", 2, "--out", "p", "--json").json
    assert found["directory"] == "p"
    assert found["num_edges"] == 12
    assert found["halo_rows"] >= 1
    assert found["replication_factor"] > 1
    assert found["total_s"] > 0
    assert "files" not in found


def test_progress_goes_to_standard_error(distgnn, ring):
    outcome = distgnn("partition", ring, "--parts", 2, "--out", "p")
    assert outcome.err.startswith("ring: 12 vertices, 12 edges, 5 features (")
    assert "part 2 of 2: " in outcome.err
    assert "vertices in auto order (" in outcome.err
    assert outcome.err.count(" s so far)\n") == 2
    assert "replication_factor" in outcome.out
    assert "wrote p in" in outcome.out


def test_an_existing_partition_is_replaced_only_if_asked(distgnn, ring):
    command = ("partition", ring, "--out", "p", "--parts")
    assert distgnn(*command, 2).status == 0
    before = read_manifest("p")
    sentence = distgnn(*command, 3).sentence
    assert sentence == (
        "'p' already holds a partition; replace it with --overwrite or choose another --out"
    )
    assert read_manifest("p") == before
    assert distgnn(*command, 3, "--overwrite").status == 0
    assert read_manifest("p").num_parts == 3


def test_overwriting_does_not_remove_what_is_not_of_the_partition(distgnn, ring, here):
    command = ("partition", ring, "--out", "p", "--parts", 2)
    assert distgnn(*command).status == 0
    (here / "p/run").mkdir()
    (here / "p/run/model").write_text("hours of work")
    sentence = distgnn(*command, "--overwrite").sentence
    assert sentence.startswith("--overwrite would remove 'run' in 'p', which is not of the part")
    assert (here / "p/run/model").read_text() == "hours of work"


@pytest.mark.parametrize("name", ["part-time.txt", "part-0002/x.npy", "part-0001/notes.npy"])
def test_overwriting_does_not_remove_what_is_called_like_a_part(name, distgnn, ring, here):
    command = ("partition", ring, "--out", "p", "--parts", 2)
    assert distgnn(*command).status == 0
    (here / "p" / name).parent.mkdir(exist_ok=True)
    (here / "p" / name).write_text("hours of work")
    sentence = distgnn(*command, "--overwrite").sentence
    assert sentence.startswith("--overwrite would remove 'part-")
    assert (here / "p" / name).read_text() == "hours of work"


def test_overwriting_does_not_remove_another_partition_inside(distgnn, ring, here):
    assert distgnn("partition", ring, "--out", "p", "--parts", 2).status == 0
    assert distgnn("partition", ring, "--out", "p/part-0001/q", "--parts", 2).status == 0
    sentence = distgnn("partition", ring, "--out", "p", "--parts", 2, "--overwrite").sentence
    assert sentence.startswith("--overwrite would remove 'part-0001/q' in 'p', which is not of")
    assert read_manifest("p/part-0001/q").num_parts == 2


def test_a_partition_with_a_damaged_manifest_may_be_replaced(distgnn, ring, here):
    command = ("partition", ring, "--out", "p", "--parts", 2)
    assert distgnn(*command).status == 0
    manifest = here / "p" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format_version": 1', '"format_version": 0'))
    assert distgnn(*command, "--overwrite").status == 0


def test_options_reach_the_graph(distgnn, ring):
    command = ("partition", ring, "--parts", 2, "--out", "p", "--json", "--seed", 5)
    found = distgnn(*command, "--undirected", "--split", "0.5/0.25/0.25").json
    assert found["num_edges"] == 24
    assert found["num_train"] == [6]
    assert found["options"] == {
        "deduplicate": False,
        "drop_self_loops": False,
        "undirected": True,
        "inverse_relations": False,
        "one_hot": False,
        "edge_split": None,
        "split": "0.5/0.25/0.25",
        "refine": None,
        "imbalance": None,
    }
    split = load(ring, split="0.5/0.25/0.25", seed=5)
    roots = [part.global_id[: part.num_roots] for part in parts_of("p", 2)]
    masks = [part.train_mask[0] for part in parts_of("p", 2)]
    order = np.argsort(np.concatenate(roots))
    assert (np.concatenate(masks)[order] == split.train_mask[0]).all()


def test_refinement_and_balance_can_be_chosen(distgnn, here):
    command = ("partition", "synthetic:rmat,scale=9", "--parts", 4, "--json", "--method", "random")
    plain = distgnn(*command, "--out", "a").json
    refined = distgnn(*command, "--out", "b", "--refine", "on", "--imbalance", 1.2).json
    assert refined["halo_rows"] < plain["halo_rows"]
    assert 1.05 < refined["edge_balance"] <= 1.2
    assert (refined["options"]["refine"], refined["options"]["imbalance"]) == (True, 1.2)
    outcome = distgnn("partition", "synthetic:path", "--parts", 2, "--out", "c", "--refine", "off")
    assert "edges by cover (" in outcome.err
    assert "refined (" not in outcome.err


def test_quality_is_chosen_and_recorded(distgnn, here):
    command = ("partition", "synthetic:rmat,scale=8", "--parts", 4, "--json")
    rows = []
    for quality in ("fast", "default", "best"):
        found = distgnn(*command, "--quality", quality, "--out", quality)
        assert found.json["options"]["quality"] == quality
        assert ("edges weigh 0.85" in found.err) == (quality != "fast")
        assert ("edges weigh 1" in found.err) == (quality == "best")
        rows.append(found.json["halo_rows"])
    assert rows == sorted(rows, reverse=True)
    plain = distgnn(*command, "--out", "plain").json
    assert plain["halo_rows"] == rows[1]
    by_auto = distgnn(*command, "--method", "auto", "--quality", "fast", "--out", "auto").json
    assert by_auto["options"]["quality"] == "fast"


def test_an_imbalance_that_cannot_be_is_refused(distgnn, ring):
    command = ("partition", ring, "--parts", 2, "--out", "p", "--imbalance")
    sentence = distgnn(*command, 0.9).sentence
    assert "--imbalance must be at least 1, which is perfect balance, got '0.9'" in sentence
    outcome = distgnn(*command, 1.1, "--method", "random")
    assert outcome.status == 2
    assert "method 'random' takes no imbalance; leave it out or refine" in outcome.err


def test_names_files_and_folders_are_sources(distgnn, here):
    assert distgnn("partition", "synthetic:path", "--parts", 2, "--out", "a").status == 0
    (here / "folder").mkdir()
    (here / "folder/edges.csv").write_text("src,dst\nx,y\ny,z\n")
    found = distgnn("partition", "folder", "--parts", 2, "--out", "b", "--json").json
    assert (found["name"], found["num_vertices"]) == ("folder", 3)
    edges = here / "folder/edges.csv"
    (here / "people.csv").write_text("id,label\nz,1\nx,0\ny,0\n")
    command = ("partition", edges, "--vertices", "people.csv", "--parts", 2, "--out", "c")
    assert distgnn(*command, "--json").json["num_classes"] == 2


def test_it_refuses_to_run_under_mpirun(distgnn, ring, monkeypatch):
    monkeypatch.setattr("distgnn.comm.early._TELL_S", 0.1)  # The other ranks never come.
    for name, value in {"RANK": 0, "SIZE": 4, "LOCAL_RANK": 0, "LOCAL_SIZE": 4}.items():
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", str(value))
    sentence = distgnn("partition", ring, "--parts", 2, "--out", "p").sentence
    assert sentence == (
        "distgnn partition runs in one process, but 4 were started; run it without mpirun, or "
        "with --out-of-core on, which shares the work among ranks"
    )


def test_options_reach_the_method_and_the_manifest(distgnn, ring):
    command = ("partition", ring, "--parts", 3, "--out", "p", "--method", "hep", "--json")
    found = distgnn(*command, "--option", "tau=2.5", "--option", "edge_balance=1.5").json
    assert found["options"] == {
        "deduplicate": False,
        "drop_self_loops": False,
        "undirected": False,
        "inverse_relations": False,
        "one_hot": False,
        "edge_split": None,
        "split": None,
        "refine": None,
        "imbalance": None,
        "tau": 2.5,
        "edge_balance": 1.5,
    }


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--option", "tau=2"), "method 'metis' has no option 'tau'; its options are: objective"),
        (("--method", "auto", "--option", "tau=2"), "--method auto takes no --option, because"),
        (("--method", "best"), "--method must be one of metis, "),
        (("--assignment-of", "edges"), "--assignment-of needs --assignment FILE; leave it out"),
        (("--assignment", "a", "--method", "ne"), "--method and --assignment exclude each other"),
        (("--assignment", "a", "--quality", "best"), "--quality and --assignment exclude each"),
        (("--method", "ne", "--quality", "best"), "method 'ne' takes no quality; leave it out or"),
        (
            ("--quality", "best", "--option", "quality=fast"),
            "quality 'best' and option 'quality' are two names of one choice; leave one of them",
        ),
        (("--assignment", "a", "--option", "x=1"), "--option and --assignment exclude each other"),
        (
            ("--imbalance", 1.2, "--option", "edge_balance=1.2"),
            "imbalance 1.2 and option 'edge_balance' are two names of one limit; leave one",
        ),
        (
            ("--assignment", "a", "--imbalance", 1.2),
            "--imbalance takes no effect on your own parts unless they are refined; leave it out",
        ),
        (("--assignment", "a"), "cannot read parts from 'a': No such file or directory; write"),
    ],
)
def test_bad_options_and_assignments_are_refused(flags, sentence, distgnn, ring):
    outcome = distgnn("partition", ring, "--parts", 3, "--out", "p", *flags)
    assert outcome.sentence.startswith(sentence)


def test_a_users_own_parts_are_taken(distgnn, ring, here):
    np.save(here / "mine.npy", np.arange(12) // 6)
    command = ("partition", ring, "--parts", 2, "--json", "--assignment", "mine.npy")
    outcome = distgnn(*command, "--out", "p")
    assert outcome.status == 2
    assert "12 parts may be of the edges or of the vertices, for graph 'ring'" in outcome.err
    for kind in ("edges", "vertices"):
        found = distgnn(*command, "--out", kind, "--assignment-of", kind).json
        assert found["method"] == "assignment"
        assert found["options"]["assignment"].endswith("/mine.npy")
        assert found["options"]["assignment_of"] == kind
        assert found["halo_rows"] == 2


def test_a_users_own_parts_may_be_refined(distgnn, here):
    source = "synthetic:rmat,scale=8"
    graph = load(source)
    np.save(here / "mine.npy", np.random.default_rng(0).integers(0, 4, graph.num_edges))
    command = ("partition", source, "--parts", 4, "--json", "--assignment", "mine.npy")
    plain = distgnn(*command, "--out", "a").json
    refined = distgnn(*command, "--out", "b", "--refine", "on", "--imbalance", 1.1).json
    assert refined["halo_rows"] < plain["halo_rows"]
    assert refined["edge_balance"] <= 1.1
    assert (refined["options"]["refine"], refined["options"]["imbalance"]) == (True, 1.1)
    assert refined["options"]["assignment_of"] == "edges"


def test_a_users_own_parts_get_the_balance_that_is_asked_for(distgnn, here):
    source = "synthetic:rmat,scale=8"
    np.save(here / "mine.npy", np.zeros(load(source).num_edges, np.int64))
    command = ("partition", source, "--parts", 4, "--json", "--assignment", "mine.npy")
    refined = ("--refine", "on", "--assignment-of", "edges")
    plain = distgnn(*command, *refined, "--out", "a")
    assert plain.json["edge_balance"] == 4
    assert "above the " in plain.err
    assert "that a balance of 1.05 allows; --imbalance pays with rows for balance" in plain.err
    outcome = distgnn(*command, *refined, "--out", "b", "--imbalance", 1.1)
    assert outcome.json["edge_balance"] <= 1.1
    assert "above the " not in outcome.err


def test_auto_says_what_it_chose_and_why(distgnn, ring):
    outcome = distgnn("partition", ring, "--parts", 2, "--out", "p", "--method", "auto")
    assert "method metis: metis takes about 0.00 GiB of " in outcome.err
    manifest = read_manifest("p")
    assert manifest.method == "metis"
    assert manifest.options["chosen"].endswith("GiB that are free")


def test_a_quality_that_the_method_of_auto_has_not_is_named(distgnn, ring, monkeypatch):
    monkeypatch.setattr("distgnn.api.methods.available_memory", lambda: 0)
    words = ("--method", "auto", "--quality", "best")
    outcome = distgnn("partition", ring, "--parts", 2, "--out", "p", *words)
    assert "--quality best has no effect on method hdrf, which was chosen" in outcome.err
    assert "quality" not in read_manifest("p").options


def test_what_auto_chose_gets_the_balance_and_is_refined(distgnn, here):
    command = ("partition", "synthetic:rmat,scale=8", "--parts", 4, "--json", "--method", "auto")
    found = distgnn(*command, "--out", "p", "--imbalance", 1.2, "--refine", "on").json
    assert 1.05 < found["edge_balance"] <= 1.2
    assert (found["options"]["refine"], found["options"]["imbalance"]) == (True, 1.2)


def test_edges_that_are_there_twice_and_loops_are_left_out(distgnn, here):
    (here / "e.csv").write_text("src,dst,weight\n0,1,5\n1,1,2\n0,1,7\n1,2,3\n1,1,4\n2,0,1\n")
    command = ("partition", "e.csv", "--parts", 1, "--json", "--out")
    counts = {
        words: distgnn(*command, f"p{number}", *words).json["num_edges"]
        for number, words in enumerate(
            [
                (),
                ("--deduplicate",),
                ("--drop-self-loops",),
                ("--drop-self-loops", "--deduplicate"),
                ("--drop-self-loops", "--deduplicate", "--undirected"),
            ]
        )
    }
    assert list(counts.values()) == [6, 4, 4, 3, 6]
    graph = load("e.csv", deduplicate=True, drop_self_loops=True)
    assert (graph.src.tolist(), graph.dst.tolist()) == ([0, 1, 2], [1, 2, 0])
    assert graph.edge_weight.tolist() == [5, 3, 1], "the first of equal edges stays"


def test_edges_of_different_types_are_not_equal():
    ends = np.array([0, 0, 0]), np.array([1, 1, 1])
    graph = make_typed(*ends, np.array([0, 1, 1]))
    assert deduplicate(graph).edge_type.tolist() == [0, 1]


def make_typed(src, dst, kinds):
    return Graph(name="g", num_vertices=2, src=src, dst=dst, edge_type=kinds)
