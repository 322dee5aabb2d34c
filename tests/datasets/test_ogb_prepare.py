from __future__ import annotations

import hashlib
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import ogb_archives as mini
import pytest

from distgnn import datasets
from distgnn.datasets import InputError
from distgnn.datasets.ogb import CATALOGUE, prepare
from distgnn.datasets.ogb import arrays as ogb_arrays


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.mark.parametrize("name", CATALOGUE)
def test_an_archive_becomes_what_ogb_unpacks_and_arrays_beside_it(
    tmp_path: Path, name: str
) -> None:
    archive, root = mini.archive_of(tmp_path, name), tmp_path / "root"
    said: list[str] = []
    made = prepare(name, root=root, archive=archive, progress=said.append)
    assert made["directory"] == str(root / name)
    raw = root / CATALOGUE[name].folder
    about = json.loads((raw / "archive.json").read_text())
    assert about["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert made["archive"] == about
    unpacked = {key: data for key, data in tree(raw).items() if key != "archive.json"}
    assert unpacked == mini.BUILDERS[name]()
    assert sorted(path.name for path in root.iterdir()) == sorted([name, raw.name])
    graph = datasets.load(name, root=root)
    assert (graph.num_vertices, graph.num_edges) == (made["num_vertices"], made["num_edges"])
    assert any(line.startswith("unpacking raw/") for line in said)
    assert any(f"{name}: converting" in line for line in said)


def test_a_path_wins_over_a_name_unless_it_is_what_the_name_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raw = mini.write_folder(tmp_path / "ogbn_arxiv", mini.arxiv())
    # The root is the working directory: the name goes on to follow the raw files.
    assert [datasets.load("ogbn-arxiv", root=".").num_vertices for _ in range(2)] == [12, 12]
    shutil.rmtree(raw)
    mini.write_folder(raw, {**mini.arxiv(), "raw/edge.csv.gz": mini.table([[0, 1]] * 20)})
    assert datasets.load("ogbn-arxiv", root=".").dst.tolist() == [1] * 20
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("ogbn-arxiv").mkdir()
    Path("ogbn-arxiv/edges.csv").write_text("0,1\n")
    assert datasets.load("ogbn-arxiv", root=tmp_path).num_vertices == 2


def test_names_are_looked_up_below_the_root_the_variable_or_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISTGNN_DATASETS", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"ogbn-arxiv is not in 'dataset'; run distgnn datasets"):
        datasets.load("ogbn-arxiv")
    mini.write_folder(tmp_path / "dataset" / "ogbn_arxiv", mini.arxiv())
    assert datasets.load("ogbn-arxiv").num_vertices == 12
    monkeypatch.setenv("DISTGNN_DATASETS", str(tmp_path / "other"))
    with pytest.raises(InputError, match=r"ogbn-arxiv is not in '.*other'"):
        datasets.load("ogbn-arxiv")
    assert datasets.load("ogbn-arxiv", root=tmp_path / "dataset").num_vertices == 12


def test_a_path_to_an_unpacked_folder_of_any_name_is_a_source(tmp_path: Path) -> None:
    mini.write_folder(tmp_path / "mine", mini.products())
    graph = datasets.load(tmp_path / "mine")
    assert (graph.name, graph.num_edges) == ("ogbn-products", 40)
    assert datasets.load(tmp_path / "ogbn-products").num_edges == 40


def test_arrays_are_made_once_and_again_when_the_raw_files_change(tmp_path: Path) -> None:
    raw = mini.write_folder(tmp_path / "ogbn_arxiv", mini.arxiv())
    datasets.load("ogbn-arxiv", root=tmp_path)
    before = (tmp_path / "ogbn-arxiv" / "src.npy").stat().st_mtime_ns
    datasets.load("ogbn-arxiv", root=tmp_path)
    assert (tmp_path / "ogbn-arxiv" / "src.npy").stat().st_mtime_ns == before
    (raw / "raw/node-label.csv.gz").write_bytes(mini.column(np.ones(12, int)))
    graph = datasets.load("ogbn-arxiv", root=tmp_path)
    assert graph.labels is not None
    assert graph.labels.tolist() == [1] * 12
    shutil.rmtree(raw)
    assert datasets.load("ogbn-arxiv", root=tmp_path).num_vertices == 12


def test_an_interrupted_conversion_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mini.write_folder(tmp_path / "ogbn_papers100M", mini.papers())

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ogb_arrays.Target, "report", lambda *_: None)
    with monkeypatch.context() as patched:
        patched.setattr("distgnn.datasets.ogb.binary.write_masks", interrupt)
        with pytest.raises(KeyboardInterrupt):
            datasets.load("ogbn-papers100M", root=tmp_path)
    (work,) = tmp_path.glob(".*.preparing")
    # Longer than the array is, so that it would not stay so if it were written again.
    stamp = (work / "features.npy").stat().st_mtime_ns
    (work / ".src.npy.123").write_bytes(b"left over")
    graph = datasets.load("ogbn-papers100M", root=tmp_path)
    assert (tmp_path / "ogbn-papers100M" / "features.npy").stat().st_mtime_ns == stamp
    assert graph.train_mask is not None
    assert not list((tmp_path / "ogbn-papers100M").glob(".*"))


def test_an_interrupted_unpacking_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, root = mini.archive_of(tmp_path, "ogbn-arxiv"), tmp_path / "root"
    left = [4]

    def interrupt(*arguments: Any) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        shutil.copyfileobj(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr("distgnn.datasets.ogb.unpack.shutil", _Shutil(interrupt))
        with pytest.raises(KeyboardInterrupt):
            prepare("ogbn-arxiv", root=root, archive=archive)
    assert not (root / "ogbn_arxiv").exists()
    said: list[str] = []
    prepare("ogbn-arxiv", root=root, archive=archive, progress=said.append)
    assert sum(line.startswith("unpacking") for line in said) == len(mini.arxiv()) - 3
    assert datasets.load("ogbn-arxiv", root=root).num_vertices == 12


class _Shutil:
    def __init__(self, copyfileobj: Any) -> None:
        self.copyfileobj = copyfileobj


def test_processes_that_prepare_at_once_wait_for_each_other(tmp_path: Path) -> None:
    mini.write_folder(tmp_path / "ogbn_arxiv", mini.arxiv())
    found: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: found.append(datasets.load("ogbn-arxiv", root=tmp_path).num_edges)
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [20] * 4


def test_an_archive_that_lay_at_the_root_is_used_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    archive = mini.archive_of(tmp_path, "ogbn-arxiv")
    data = archive.read_bytes()
    made = prepare("ogbn-arxiv", root=tmp_path, url="http://localhost:9/elsewhere.zip")
    assert archive.read_bytes() == data
    assert "url" not in made["archive"]
    assert "arxiv.zip lies there, so it is used and nothing is downloaded" in caplog.text
    shutil.rmtree(tmp_path / "ogbn_arxiv")
    shutil.rmtree(tmp_path / "ogbn-arxiv")
    archive.write_bytes(data[:-100])
    with pytest.raises(
        InputError, match=r"arxiv.zip is damaged or its end is missing .*http[^;]*$"
    ):
        prepare("ogbn-arxiv", root=tmp_path)
    assert archive.is_file()


def test_flags_that_come_too_late_are_said_to_be_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    archive = mini.archive_of(tmp_path, "ogbn-arxiv")
    root = tmp_path / "root"
    made = prepare("ogbn-arxiv", root=root, archive=archive)
    assert "already" not in caplog.text
    assert prepare("ogbn-arxiv", root=root, archive="other.zip") == made
    assert (
        "ogbn-arxiv is there already, so other.zip is not read; to prepare it anew" in caplog.text
    )
    assert f"remove {root / 'ogbn_arxiv'} and {root / 'ogbn-arxiv'}" in caplog.text
    shutil.rmtree(root / "ogbn_arxiv")
    assert prepare("ogbn-arxiv", root=root, url="http://localhost:9/x.zip") == made
    assert f"x.zip is not read; to prepare it anew, remove {root / 'ogbn-arxiv'}" in caplog.text


def test_arrays_of_another_version_are_made_anew(tmp_path: Path) -> None:
    raw = mini.write_folder(tmp_path / "ogbn_arxiv", mini.arxiv())
    made = prepare("ogbn-arxiv", root=tmp_path)
    record = tmp_path / "ogbn-arxiv" / "prepared.json"
    old = json.dumps({**json.loads(record.read_text()), "format": 0})
    record.write_text(old)
    assert prepare("ogbn-arxiv", root=tmp_path) == made
    record.write_text(old)
    shutil.rmtree(raw)
    with pytest.raises(
        InputError, match=r"ogbn-arxiv' was made by another version of distgnn, and .* run distgnn"
    ):
        datasets.load("ogbn-arxiv", root=tmp_path)
    prepare("ogbn-arxiv", root=tmp_path, archive=mini.archive_of(tmp_path, "ogbn-arxiv"))
    assert datasets.load("ogbn-arxiv", root=tmp_path).num_vertices == 12


def test_arrays_that_others_read_are_replaced_before_they_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = mini.write_folder(tmp_path / "ogbn_arxiv", mini.arxiv())
    datasets.load("ogbn-arxiv", root=tmp_path)
    (raw / "raw/node-label.csv.gz").write_bytes(mini.column(np.ones(12, int)))
    arrays, remove = tmp_path / "ogbn-arxiv", shutil.rmtree
    is_complete = []

    def watched(folder: Path, **options: Any) -> None:
        remove(folder, **options)
        is_complete.append((arrays / "prepared.json").is_file())

    monkeypatch.setattr(shutil, "rmtree", watched)
    datasets.load("ogbn-arxiv", root=tmp_path)
    assert is_complete
    assert all(is_complete)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ogbn-arxiv", "ogbn_arxiv"]


def test_a_folder_that_others_own_is_used_as_it_lies(tmp_path: Path) -> None:
    raw = mini.write_folder(tmp_path / "theirs" / "ogbn_arxiv", mini.arxiv())
    before = tree(tmp_path / "theirs")
    prepare("ogbn-arxiv", root=tmp_path / "mine", archive=raw)
    assert datasets.load("ogbn-arxiv", root=tmp_path / "mine").num_vertices == 12
    assert tree(tmp_path / "theirs") == before


def test_a_place_that_cannot_be_written_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini.write_folder(tmp_path / "ogbn_arxiv", mini.arxiv())

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(
        InputError, match=r"cannot be made \(.*denied\); .* --archive .* --root DIR"
    ):
        datasets.load("ogbn-arxiv", root=tmp_path)
    with pytest.raises(
        InputError, match=r"ogbn-arxiv cannot be written to .*choose another folder"
    ):
        prepare("ogbn-arxiv", root=tmp_path / "new")
