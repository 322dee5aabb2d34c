from __future__ import annotations

import gzip
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn import datasets
from distgnn.datasets import InputError, ntriples
from distgnn.datasets.ntriples import read_ntriples, text_of

SWRC = "http://swrc.ontoware.org/ontology#"
LINES = [
    "# a comment",
    f'<http://x/p1> <{SWRC}name> "Ann \\"A.\\" \\u00c9" .',
    f'<http://x/p2> <{SWRC}name> "Bob"@en .',
    f'<http://x/p3> <{SWRC}name> "7"^^<http://www.w3.org/2001/XMLSchema#int> .',
    f"<http://x/p1> <{SWRC}knows> <http://x/p2> .",
    f"<http://x/p1> <{SWRC}knows> <http://x/p2> .",
    f"<http://x/p2> <{SWRC}knows> _:b1 . # a blank node",
    f"_:b1 <{SWRC}knows> <http://x/p3>.",
    f"<http://x/p3> <{SWRC}knows> <http://x/p4> .",
    f"<http://x/p4> <{SWRC}likes> <http://x/p1> .",
    "",
    f"<http://x/p1> <{SWRC}affiliation> <http://x/red> .",
    f"<http://x/red> <{SWRC}employs> <http://x/p1> .",
]
HEADER = "person\tid\tlabel_affiliation\n"


def write(folder: Path, lines: list[str] = LINES, *, name: str = "aifb_stripped.nt.gz") -> Path:
    text = "\n".join(lines) + "\n"
    if name.endswith(".gz"):
        (folder / name).write_bytes(gzip.compress(text.encode()))
    else:
        (folder / name).write_text(text)
    train = "http://x/p1\t1.0\thttp://x/red\nhttp://x/p2\t2.0\thttp://x/blue\n"
    (folder / "trainingSet.tsv").write_text(HEADER + train)
    (folder / "testSet.tsv").write_text(HEADER + "http://x/p3\t3.0\thttp://x/red\n")
    return folder


def edges_of(graph: Any) -> set[tuple[str, str, str]]:
    names = np.array(graph.relation_names)[graph.edge_type]
    ids = graph.vertex_id
    return set(zip(ids[graph.src].tolist(), names.tolist(), ids[graph.dst].tolist(), strict=True))


@pytest.mark.parametrize("name", ["aifb_stripped.nt.gz", "aifb.nt"])
def test_terms_are_vertices_and_statements_typed_edges(tmp_path: Path, name: str) -> None:
    graph: Any = datasets.load(write(tmp_path, name=name))
    assert graph.name == "aifb"
    assert graph.num_edges == 8  # one is twice in the file
    knows, named, likes = (f"{SWRC}{word}" for word in ("knows", "name", "likes"))
    assert graph.relation_names == (knows, named, likes)
    found = edges_of(graph)
    assert ("http://x/p1", named, '"Ann "A." \u00c9"') in found
    assert ("http://x/p2", named, '"Bob"@en') in found
    assert ("_:b1", knows, "http://x/p3") in found
    assert ("http://x/p4", likes, "http://x/p1") in found
    kinds = dict(zip(graph.vertex_id.tolist(), graph.vertex_type.tolist(), strict=True))
    assert (kinds["http://x/p1"], kinds["_:b1"], kinds['"Bob"@en']) == (0, 1, 2)
    assert graph.num_vertices == 4 + 1 + 3


def test_relations_that_say_the_label_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "distgnn"):
        graph: Any = datasets.load(write(tmp_path))
    assert "http://x/red" not in graph.vertex_id
    assert f"2 statements of {SWRC}affiliation, {SWRC}employs left out" in caplog.text


def test_labels_and_masks_are_the_published_ones(tmp_path: Path) -> None:
    graph: Any = datasets.load(write(tmp_path))
    label = dict(zip(graph.vertex_id.tolist(), graph.labels.tolist(), strict=True))
    assert graph.class_names == ("http://x/blue", "http://x/red")
    assert [label[f"http://x/p{i}"] for i in (1, 2, 3, 4)] == [1, 0, 1, -1]
    assert set(graph.vertex_id[graph.train_mask[0]]) == {"http://x/p1", "http://x/p2"}
    assert set(graph.vertex_id[graph.test_mask[0]]) == {"http://x/p3"}
    assert not graph.val_mask.any()


MUTAG = "http://dl-learner.org/carcinogenesis#"
TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
XSD = "http://www.w3.org/2001/XMLSchema#"


def test_mutag_is_read_as_published(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Labels are numbers written as 0.0 and 1.0, and ids of molecules begin with one another."""
    lines = [
        f"<{MUTAG}d23_1> {TYPE} <{MUTAG}Compound> .",
        f"<{MUTAG}d23> {TYPE} <{MUTAG}Compound> .",
        f"<{MUTAG}d23_1> <{MUTAG}hasAtom> <{MUTAG}d23_1_5> .",
        f'<{MUTAG}d23_1_5> <{MUTAG}charge> "-0.127"^^<{XSD}double> .',
        f'<{MUTAG}d23> <{MUTAG}amesTestPositive> "true"^^<{XSD}boolean> .',
        "_:N4ebd <http://www.w3.org/2002/07/owl#unionOf> _:Nb072 .",
        f'<{MUTAG}d23> <{MUTAG}isMutagenic> "true"^^<{XSD}boolean> .',
    ]
    (tmp_path / "mutag_stripped.nt.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    header = "bond\tid\tlabel_mutagenic\n"
    (tmp_path / "trainingSet.tsv").write_text(f"{header}{MUTAG}d23_1\t26.0\t0.0\n")
    (tmp_path / "testSet.tsv").write_text(f"{header}{MUTAG}d23\t6.0\t1.0\n")
    with caplog.at_level(logging.INFO, "distgnn"):
        graph: Any = datasets.load("mutag", root=tmp_path)
    assert f"1 statements of {MUTAG}isMutagenic left out" in caplog.text
    assert (graph.name, graph.num_edges, graph.class_names) == ("mutag", 6, ("0.0", "1.0"))
    assert graph.vertex_id[graph.train_mask[0]].tolist() == [f"{MUTAG}d23_1"]
    assert graph.vertex_id[graph.test_mask[0]].tolist() == [f"{MUTAG}d23"]
    assert graph.labels[graph.labels >= 0].tolist() == [0, 1]
    assert sorted(set(graph.vertex_type.tolist())) == [0, 1, 2]


def test_tables_of_bgs_have_names_of_their_own(tmp_path: Path) -> None:
    rock = "http://data.bgs.ac.uk/id/Lexicon/NamedRockUnit/"
    line = f"<{rock}SHE> <http://data.bgs.ac.uk/ref/Lexicon/hasRockUnitRank> <{rock}DAY> ."
    (tmp_path / "bgs_stripped.nt").write_text(line)
    for name, unit in (("trainingSet", "SHE"), ("testSet", "DAY")):
        text = f"id\trock\tlabel_lithogenesis\n36.0\t{rock}{unit}\t{rock[:-14]}FLUV\n"
        (tmp_path / f"{name}(lith).tsv").write_text(text)
    graph: Any = datasets.load(tmp_path)
    assert graph.vertex_id[graph.train_mask[0]].tolist() == [f"{rock}SHE"]
    assert graph.vertex_id[graph.test_mask[0]].tolist() == [f"{rock}DAY"]
    (tmp_path / "testSet(lith).tsv").unlink()
    both = r"put trainingSet\(lith\).tsv and testSet\(lith\).tsv beside bgs_stripped.nt"
    with pytest.raises(InputError, match=both):
        datasets.load(tmp_path)


def test_a_file_without_tables_has_no_labels(tmp_path: Path) -> None:
    write(tmp_path)
    for name in ("trainingSet.tsv", "testSet.tsv"):
        (tmp_path / name).unlink()
    assert datasets.load(tmp_path / "aifb_stripped.nt.gz").labels is None


def test_the_stripped_file_is_taken_of_several(tmp_path: Path) -> None:
    write(tmp_path, LINES[:3], name="aifb_complete.nt")
    write(tmp_path)
    assert datasets.load(tmp_path).num_edges == 8
    write(tmp_path, name="other_stripped.nt")
    with pytest.raises(InputError, match=r"must have one .nt or .nt.gz file, got aifb_stripped"):
        datasets.load(tmp_path)


def test_slices_give_the_same_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_ntriples(write(tmp_path) / "aifb_stripped.nt.gz")
    for size in (1, 7, 64, 300):
        monkeypatch.setattr(ntriples, "_SLICE_BYTES", size)
        found = read_ntriples(tmp_path / "aifb_stripped.nt.gz")
        assert (found.terms, found.predicates) == (whole.terms, whole.predicates)
        for field in ("subject", "predicate", "object"):
            assert np.array_equal(getattr(found, field), getattr(whole, field))


def test_escapes_are_resolved() -> None:
    assert text_of(rb"<http://x/\u00E9\U0001F600>") == "http://x/\u00e9\U0001f600"
    assert text_of(rb'"a\tb\\n\"\uD800"') == '"a\tb\\n"\N{REPLACEMENT CHARACTER}"'


@pytest.mark.parametrize(
    "line",
    [
        "<http://x/p1> <http://x/r> <http://x/p2>",
        "<http://x/p1> <http://x/r> .",
        "<http://x/p1> _:b <http://x/p2> .",
        '"text" <http://x/r> <http://x/p2> .',
        '<http://x/p1> <http://x/r> "open .',
        "p1,r,p2",
    ],
)
def test_a_line_that_is_no_statement_is_named(tmp_path: Path, line: str) -> None:
    write(tmp_path, [*LINES[:3], line, *LINES[3:]])
    with pytest.raises(InputError, match=r"line 4 of .*aifb_stripped.nt.gz is .*a statement of"):
        datasets.load(tmp_path)


def test_cut_and_empty_files_are_one_sentence(tmp_path: Path) -> None:
    file = write(tmp_path) / "aifb_stripped.nt.gz"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"cannot be unpacked .*the file is cut or damaged"):
        datasets.load(tmp_path)
    write(tmp_path, ["# nothing"])
    with pytest.raises(InputError, match="has no statements"):
        datasets.load(tmp_path)
    write(tmp_path, LINES[-2:])
    with pytest.raises(InputError, match="only, which are the labels"):
        datasets.load(tmp_path)
    with pytest.raises(InputError, match=r"there is no file .*none\.nt"):
        datasets.load(tmp_path / "none.nt")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\n", "has the columns a, b; one must be person or bond or rock or proxy"),
        ("", "has the columns ; one must be"),
        (HEADER + "http://x/p1\t1.0\n", "row 1 of .*trainingSet.tsv has no entity or no label"),
        (HEADER + "http://x/nobody\t1.0\tx\n", "lists no entity of the graph"),
        (HEADER + "\0\n", "has no entity or no label|is no table of texts"),
    ],
)
def test_wrong_tables_are_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path)
    (tmp_path / "trainingSet.tsv").write_text(text)
    with pytest.raises(InputError, match=message):
        datasets.load(tmp_path)


def test_a_table_without_its_partner_or_with_strangers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path)
    with (tmp_path / "testSet.tsv").open("a") as file:
        file.write("http://x/nobody\t9.0\thttp://x/red\n")
    assert datasets.load(tmp_path).labels is not None
    assert "testSet.tsv: 1 of 2 entities are in no statement and left out" in caplog.text
    (tmp_path / "testSet.tsv").unlink()
    with pytest.raises(InputError, match=r"has no partner; put trainingSet.tsv and testSet.tsv"):
        datasets.load(tmp_path)


# A choice for each character, as the standard has it.
STANDARD_LITERAL = rb"\"(?:[^\"\\\n\r]|\\.)*\"(?:@[A-Za-z0-9-]+|\^\^<[^<>\"\s]*>)?"


@settings(max_examples=500, deadline=None)
@given(text=st.text('"\\\n\ra@^<>', max_size=20))
def test_literals_are_those_of_the_standard(text: str) -> None:
    found = [(match.span(), match[0]) for match in re.finditer(ntriples._LITERAL, text.encode())]
    wanted = [(match.span(), match[0]) for match in re.finditer(STANDARD_LITERAL, text.encode())]
    assert found == wanted


LONG_LITERAL = """
import pathlib, resource, sys
from distgnn.datasets.ntriples import read_ntriples
pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (150 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(len(read_ntriples(pathlib.Path(sys.argv[1])).terms[1]))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="measures memory by /proc")
def test_a_long_literal_takes_little_memory(tmp_path: Path) -> None:
    (tmp_path / "a.nt").write_text(f'<s> <p> "{"x" * 5_000_000}" .\n')
    command = [sys.executable, "-c", LONG_LITERAL, str(tmp_path / "a.nt")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.returncode) == ("5000002\n", 0), ended.stderr
