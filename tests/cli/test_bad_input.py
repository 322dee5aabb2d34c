"""Every mistake a user can make ends in one sentence, status 2, and nothing half-written."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
from ring import ring_arrays

VERTEX = np.arange(12)
RING = np.stack([VERTEX, (VERTEX + 1) % 12])
NAN = np.eye(12, 5)
NAN[3, 2] = np.nan

BAD_ARRAYS = {
    # wrong shape
    "edges in two columns": (
        {"edge_index": RING.T},
        r"edge_index must have shape \(2, num_edges\), got \(12, 2\)",
    ),
    "a row of features too few": (
        {"features": np.eye(5), "num_vertices": 12},
        r"features must have shape \(12, num_features\) .*, got \(5, 5\)",
    ),
    "a label too few": ({"labels": VERTEX[:11] % 3}, r"labels must have shape .*, got \(11,\)"),
    "a mask too short": (
        {"val_mask": np.ones(11, dtype=bool)},
        r"val_mask must have shape .*, got \(11,\)",
    ),
    "a weight too few": ({"edge_weight": np.ones(11)}, "edge_weight must hold 12 numbers"),
    # ids out of range
    "an edge from nowhere": (
        {"edge_index": np.where(RING == 5, 12, RING)},
        r"edge \d+ leaves vertex 12, but the graph has 12 vertices \(0..11\)",
    ),
    "an edge from below 0": (
        {"edge_index": np.where(RING == 5, -1, RING)},
        r"edge \d+ leaves vertex -1, but the graph has 12 vertices",
    ),
    "fewer vertices than edges use": ({"num_vertices": 0}, "num_vertices must be a whole number"),
    # features
    "a feature that is NaN": (
        {"features": NAN},
        r"features have 1 values that are NaN or infinite .* at vertex 3 \(nan\)",
    ),
    "a feature beyond float32": ({"features": np.eye(12) * 1e300}, "NaN or infinite in float32"),
    "features that are texts": ({"features": np.eye(12).astype(str)}, "features must hold numbers"),
    "features that are objects": (
        {"features": np.array([None] * 12, dtype=object)},
        "features cannot be read",
    ),
    # labels out of range
    "a label below -1": (
        {"labels": VERTEX - 2},
        r"vertex 0 has label -2, but labels are -1 \(unlabelled\), 0, 1",
    ),
    "a label between two": ({"labels": VERTEX / 2}, "labels must hold integers, got float64"),
    "several labels that are counts": (
        {"labels": np.full((12, 2), 2)},
        "vertex 0 has value 2 in label column 0",
    ),
    # masks
    "masks that overlap": (
        {"val_mask": VERTEX < 2},
        "vertex 0 is in both train_mask and val_mask of split 0",
    ),
    "a mask that is empty": (
        {"test_mask": np.zeros(12, dtype=bool)},
        "test_mask of split 0 selects no vertex",
    ),
    "a mask of a vertex without a label": (
        {"labels": np.where(VERTEX == 0, -1, VERTEX % 3)},
        "train_mask of split 0 selects vertex 0, which has no label",
    ),
    "two masks of three": ({"test_mask": None}, "test_mask is missing"),
    "masks without labels": ({"labels": None}, "but no labels"),
    "no edges at all": ({"edge_index": None}, "edge_index is missing"),
}


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.fixture
def refuse(distgnn, here):
    """Run a command that must be refused and leave everything as it was."""

    def run(*words, match):
        before = contents(here)
        sentence = distgnn(*words).sentence
        assert re.search(match, sentence), sentence
        assert contents(here) == before

    return run


SOURCE_VERBS = {
    "partition": ["--parts", 2, "--out", "new/parts"],
    "train": ["--run", "new/run", "--epochs", 1],
}


@pytest.mark.parametrize("verb", SOURCE_VERBS)
@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_arrays_that_contradict_themselves(case, verb, refuse, here):
    changes, match = BAD_ARRAYS[case]
    np.savez(here / "bad.npz", **ring_arrays(**changes))
    refuse(verb, "bad.npz", *SOURCE_VERBS[verb], match=rf"bad\.npz: .*{match}.*; \w+")


BAD_SOURCES = {
    "nosuch": "there is no dataset, file or folder 'nosuch'",
    "nosuch.npz": "nosuch.npz: there is no such file",
    "nosuch.csv": "there is no file .*nosuch.csv",
    "text.npz": "text.npz: this is not an .npz file or its end is missing",
    "empty.npz": "empty.npz: this is not an .npz file",
    "cut.npz": "cut.npz: this is not an .npz file or its end is missing",
    "flipped.npz": "flipped.npz: .* cannot be read",
    "empty.csv": "empty.csv has no rows",
    "bytes.csv": "bytes.csv is not a text file|bytes.csv has text that is not UTF-8",
    "ragged.csv": "line 2 of .*ragged.csv has 1 columns, but line 1 has 2",
    "folder": "folder .*folder has no edge list",
    "folder.csv": "there is no file .*folder.csv",
    "parts": "is a partition directory|manifest.json' is not JSON",
    "text.png": "'.*text.png'.* give a file that ends in .npz, .csv",
    "synthetic:nosuch": "there is no synthetic graph 'nosuch'",
    "synthetic:path,num_vertices=x": "option 'num_vertices' must be a whole number, got 'x'",
    "synthetic:planted,num_vertices=9999999999999": "there is not enough memory|must be",
    "a" * 300: "File name too long|there is no dataset",
    "": "SOURCE must be a path, got ''",
}


@pytest.mark.parametrize("verb", SOURCE_VERBS)
@pytest.mark.parametrize("source", BAD_SOURCES)
def test_a_source_that_is_no_graph(source, verb, refuse, here, ring):
    sound = ring.read_bytes()
    (here / "text.npz").write_text("hello")
    (here / "empty.npz").touch()
    (here / "cut.npz").write_bytes(sound[: len(sound) // 2])
    # Inside the first array, behind its headers.
    (here / "flipped.npz").write_bytes(sound[:300] + bytes([sound[300] ^ 255]) + sound[301:])
    (here / "empty.csv").touch()
    (here / "bytes.csv").write_bytes(bytes(range(256)))
    (here / "ragged.csv").write_text("0,1\n2\n")
    (here / "text.png").write_text("hello")
    (here / "folder").mkdir()
    (here / "folder.csv").mkdir()
    (here / "parts").mkdir()
    (here / "parts/manifest.json").write_text("{")
    refuse(verb, source, *SOURCE_VERBS[verb], match=BAD_SOURCES[source])


BAD_TABLES = {
    "id,label\nx,0\n": "line 2 of .*edges.csv has an edge at vertex 'y', which .* does not list",
    "name\nx\n": "has no column 'id' among name",
    "id\nx\nx\ny\n": "vertex id x occurs more than once",
    "id,split\nx,train\ny,maybe\n": "has split 'maybe'; write train, val, test or nothing",
    "id,size\nx,nan\ny,1\n": "features have 1 values that are NaN or infinite",
    "id,label\nx,inf\ny,1\n": "has label 'inf', but labels are integers, class names or values",
    "": "has no rows",
}


@pytest.mark.parametrize("table", BAD_TABLES)
def test_a_vertex_table_that_does_not_fit(table, refuse, here):
    (here / "edges.csv").write_text("src,dst\nx,y\n")
    (here / "vertices.csv").write_text(table)
    words = ("partition", "edges.csv", "--vertices", "vertices.csv", "--parts", 1, "--out", "p")
    refuse(*words, match=BAD_TABLES[table])


@pytest.mark.parametrize("parts", [13, 2**31 - 1])
def test_more_parts_than_vertices(parts, refuse, ring):
    words = ("partition", ring, "--parts", parts, "--out", "p")
    refuse(*words, match=f"--parts {parts} asks for more parts than graph 'ring' has vertices; ")


NO_COUNT = r"must be a whole number from \d+ to \d+, got '{}'; see distgnn \w+ --help"
NO_NUMBER = "must be a finite number of at most 1e[+]30, got '{}'; see distgnn train --help"


@pytest.mark.parametrize(
    ("verb", "flag", "value", "match"),
    [
        ("partition", "--parts", "0", NO_COUNT),
        ("partition", "--parts", "-1", NO_COUNT),
        ("partition", "--parts", "1.5", NO_COUNT),
        ("partition", "--parts", "", NO_COUNT),
        ("partition", "--parts", "9" * 30, NO_COUNT),
        ("partition", "--seed", "-1", NO_COUNT),
        ("partition", "--seed", "9223372036854775808", NO_COUNT),
        ("partition", "--method", "scotch", "must be one of metis, .*, got '{}'"),
        ("partition", "--method", "", "must be one of metis, .*, got '{}'"),
        ("partition", "--order", "rabit", "must be one of auto, source, .*, got '{}'"),
        ("partition", "--split", "0.6", "three fractions for train, val and test, got '{}'"),
        ("partition", "--split", "1/1/1", "above 0 that sum to at most 1, got {}"),
        ("partition", "--split", "nan/0/0", "above 0 that sum to at most 1, got {}"),
        ("partition", "--split", "1e-9/0.5/0.5", "leaves train, val or test empty"),
        ("partition", "--vertices", "v.csv", "takes no vertex table, only edge lists do"),
        ("train", "--hidden", "0", NO_COUNT),
        ("train", "--hidden", "9" * 20, NO_COUNT),
        ("train", "--layers", "0", NO_COUNT),
        ("train", "--epochs", "0", NO_COUNT),
        ("train", "--epochs", "many", NO_COUNT),
        ("train", "--seed", "9" * 20, NO_COUNT),
        ("train", "--eval-every", "0", NO_COUNT),
        ("train", "--patience", "-1", NO_COUNT),
        ("train", "--checkpoint-every", "-1", NO_COUNT),
        ("train", "--threads", "0", NO_COUNT),
        ("train", "--threads", "99999", NO_COUNT),
        ("train", "--split-index", "-1", "must be a whole number from .*, got '{}', or all; see"),
        ("train", "--split-index", "1", r"--split-index 1 is out of range: .* \(0..0\)"),
        ("train", "--lr", "fast", NO_NUMBER),
        ("train", "--lr", "nan", NO_NUMBER),
        ("train", "--lr", "1e300", NO_NUMBER),
        ("train", "--lr", "0", "--lr must be positive and finite, got 0.0"),
        ("train", "--weight-decay", "-1", "--weight-decay must be at least 0.*, got -1.0"),
        ("train", "--weight-decay", "inf", NO_NUMBER),
        ("train", "--dropout", "1", "--dropout must be at least 0 and below 1, got 1.0"),
        ("train", "--input-dropout", "-0.1", "--input-dropout must be at least 0 and below 1"),
        ("train", "--model", "mlp", "--model must be one of .*, got '{}'"),
        ("train", "--aggregator", "sum", "--aggregator must be one of .*, got '{}'"),
        ("train", "--norm", "x", "--norm must be one of none, batch, layer, got '{}'"),
        ("train", "--jumping", "x", "--jumping must be one of none, cat, max, last, got '{}'"),
        ("train", "--optimizer", "x", "--optimizer must be one of adam, .*, kfac, lbfgs, got '{}'"),
        ("train", "--feature-norm", "x", "--feature-norm must be one of .*, got '{}'"),
        ("train", "--algorithm", "cd-x", "--algorithm must be 0c, cd-0 or cd-R .*, got '{}'"),
        ("train", "--delay-cache", "off", "--delay-cache off has no effect with --algorithm cd-0"),
        ("train", "--delay-cache", "maybe", "--delay-cache must be on or off, got '{}'; see dist"),
        ("train", "--bins", "0", "--bins must be a whole number from 1 to .*, got '{}'"),
        ("train", "--delay", "-1", "--delay must be a whole number from 0 to .*, got '{}'"),
        ("train", "--warm-up-epochs", "9", "--warm-up-epochs 9 has no effect with --algorithm"),
        ("train", "--smoothing", "1", "--smoothing must be at least 0 and below 1, got 1.0"),
        ("train", "--trace", "no/file", "cannot write trace '{}': No such file or directory; "),
        ("train", "--trace", "", "--trace must be a path, got ''"),
        ("train", "--trace-epochs", "3", "--trace-epochs must be A:B for epochs A to B - 1, .* '3"),
        ("train", "--trace-epochs", "3:3", "--trace-epochs must be A:B for epochs A to B - 1, "),
        ("train", "--trace-epochs", "0:3", "--trace-epochs 0:3 has no effect without --trace"),
        ("train", "--static-input", "", "--static-input must be on or off, got '{}'; see distgn"),
        ("train", "--backend", "smoke", "backend must be one of auto, gloo.*, got '{}'"),
        ("train", "--interface", "eth99", "network interface must be one of .*, got '{}'"),
    ],
)
def test_a_value_that_is_not_allowed(verb, flag, value, match, refuse, ring):
    words = [verb, ring, *SOURCE_VERBS[verb], f"{flag}={value}"]
    refuse(*words, match=match.format(re.escape(value)))


def test_a_trace_of_epochs_that_the_run_does_not_have(refuse, ring):
    words = ("--run", "r", "--epochs", 5, "--trace", "t", "--trace-epochs", "5:9")
    refuse("train", ring, *words, match="--trace-epochs 5:9 picks none of the 5 epochs; begin be")


@pytest.mark.parametrize("flag", ["--reweight-loss", "--model=gcn --aggregator=max", "--heads=2"])
def test_flags_that_contradict_each_other(flag, refuse, ring):
    refuse("train", ring, "--run", "r", *flag.split(), match=r"(ha[sv]e? (no|an) effect).*; ")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"features": None}, "the graph has no features, .*; add features to the source"),
        (
            {"labels": None, "train_mask": None, "val_mask": None, "test_mask": None},
            "the graph has no labels to train on; add labels",
        ),
        (
            {"train_mask": None, "val_mask": None, "test_mask": None},
            "has no train, validation and test masks; make a split with --split 0.6/0.2/0.2",
        ),
    ],
)
def test_a_graph_that_cannot_be_trained_on(changes, match, refuse, here):
    np.savez(here / "g.npz", **ring_arrays(**changes))
    refuse("train", "g.npz", "--run", "r", match=match)


def test_a_partition_for_another_number_of_ranks(refuse, ring_parts):
    match = (
        f"partition directory '{ring_parts}' was made for 3 parts, but 1 rank was started; "
        f"run mpirun -n 3 distgnn train {ring_parts}"
    )
    refuse("train", ring_parts, "--run", "r", match=re.escape(match))


@pytest.fixture
def one_part(distgnn, ring, here):
    """A partition that one process trains on."""
    assert distgnn("partition", ring, "--parts", 1, "--out", "p").status == 0
    return here / "p"


@pytest.mark.parametrize(
    ("name", "damage", "match"),
    [
        ("features", lambda b: b[:-1], "has 367 bytes, but the manifest says 368"),
        ("features", lambda b: b"", "has 0 bytes, but the manifest says 368"),
        ("features", lambda b: b[:-1] + bytes([b[-1] ^ 1]), "was altered: its sha256 is not that"),
        ("indices", lambda b: b[:-4] + b"\xff\xff\xff\x7f", "was altered: its sha256 is not that"),
        ("labels", lambda b: b"x" * len(b), "was altered"),
        ("indptr", None, "cannot be read: No such file or directory"),
    ],
)
def test_a_damaged_part_file(name, damage, match, refuse, one_part):
    file = one_part / f"part-0000/{name}.npy"
    content = file.read_bytes()
    file.unlink()
    if damage is not None:
        file.write_bytes(damage(content))
    refuse("train", "p", "--run", "r", match=f"file '.*{name}.npy' .*{match}.*; partition the gr")


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('"format_version": 1', '"format_version": 99', "it has format_version 99, but this vers"),
        ('"format": "distgnn-partition"', '"format": "dgl"', "it is not a distgnn-partition man"),
        ('"num_vertices"', '"num_nodes"', "it lacks 'num_vertices'"),
        ("{", "", "is not JSON"),
    ],
)
@pytest.mark.parametrize("verb", ["train", "inspect"])
def test_a_damaged_manifest(old, new, match, verb, refuse, one_part):
    file = one_part / "manifest.json"
    text = file.read_text()
    file.write_text(text.replace(old, new, 1))
    words = ["--run", "r"] if verb == "train" else []
    refuse(verb, "p", *words, match=f"manifest.json' .*{match}.*; partition the graph again")


@pytest.mark.parametrize("words", [["inspect", "nosuch"], ["inspect", "folder"]])
def test_a_directory_that_is_no_partition(words, refuse, here):
    (here / "folder").mkdir()
    refuse(*words, match="there is no partition directory|give a partition directory")


@pytest.mark.parametrize(
    ("out", "match"),
    [
        ("file", "'.*file' exists and is not a partition directory, so it is left alone"),
        ("folder", "'.*folder' exists and is not a partition directory"),
        ("file/parts", "cannot write .*'.*file' is not a writable directory"),
        ("/proc/parts", "cannot write '/proc/parts': .*; choose another --out"),
        ("a" * 300, "File name too long"),
        ("", "--out must be a path, got ''"),
    ],
)
def test_a_partition_that_cannot_be_written(out, match, refuse, here, ring):
    (here / "file").write_text("mine")
    (here / "folder").mkdir()
    (here / "folder/file").write_text("mine")
    for more in ([], ["--overwrite"]):
        refuse("partition", ring, "--parts", 2, f"--out={out}", *more, match=match)


@pytest.mark.parametrize(
    ("run", "match"),
    [
        ("file", "cannot write run directory 'file': .*; choose another with --run"),
        ("folder", "'folder' holds files that are not a run's, such as 'file'; choose an empty"),
        ("file/run", "cannot write run directory 'file/run': Not a directory"),
        ("/proc/run", "cannot write run directory '/proc/run': "),
        (".", "'.' holds files that are not a run's"),
        ("a" * 300, "File name too long"),
        ("", "--run must be a path, got ''"),
    ],
)
def test_a_run_that_cannot_be_written(run, match, refuse, here, ring):
    (here / "file").write_text("mine")
    (here / "folder").mkdir()
    (here / "folder/file").write_text("mine")
    for more in ([], ["--overwrite"], ["--resume"]):
        refuse("train", ring, f"--run={run}", "--quiet", *more, match=match)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"train": []}', '{"train": {"lr": 1}}'])
def test_a_run_whose_configuration_is_damaged_does_not_resume(text, distgnn, ring, here):
    assert distgnn("train", ring, "--run", "r", "--epochs", 1, "--quiet").status == 0
    (here / "r/config.json").write_text(text)
    sentence = distgnn("train", ring, "--run", "r", "--epochs", 2, "--resume").sentence
    assert "config.json' is not" in sentence or "the run's configuration must have" in sentence
    assert (here / "r/config.json").read_text() == text


def test_a_folder_s_own_files_survive_a_partition_that_fails(refuse, here, ring_parts):
    shutil.copytree(ring_parts, here / "p")
    refuse("partition", "nosuch.npz", "--parts", 2, "--out", "p", "--overwrite", match="no such")
