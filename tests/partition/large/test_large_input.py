from __future__ import annotations

from pathlib import Path

import pytest

from distgnn.partition.large.input import SourceText

PLANETOID = [f"ind.mini.{part}" for part in ("y", "tx", "ty", "allx", "ally", "graph")]


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("ind.mini.graph", "ind.mini.allx"),
        ("ind.mini.graph", "ind.mini.test.index"),
        ("aifb_stripped.nt.gz", "trainingSet.tsv"),
        ("edges.csv", "table.csv"),
    ],
)
def test_a_source_is_another_one_when_any_file_of_it_changes(
    tmp_path: Path, source: str, changed: str
) -> None:
    others = ("ind.mini.test.index", "aifb_stripped.nt.gz", "trainingSet.tsv", "edges.csv")
    for name in (*PLANETOID, *others, "table.csv"):
        (tmp_path / name).write_text(name)
    vertices = str(tmp_path / "table.csv") if source == "edges.csv" else None
    given = SourceText(source=str(tmp_path / source), vertices=vertices)
    before = given.checksum(), given.about()
    (tmp_path / "notes.txt").write_text("of nobody")
    assert (given.checksum(), given.about()) == before
    (tmp_path / changed).write_text("more")
    assert given.checksum() != before[0]
    assert given.about() != before[1]
