from __future__ import annotations

import io
import shutil
import stat
import zipfile
from pathlib import Path

import numpy as np
import ogb_archives as mini
import pytest

from distgnn import datasets
from distgnn.datasets import InputError
from distgnn.datasets.ogb import prepare


def _zip(tmp_path: Path, *names: str) -> Path:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    return tmp_path / "bad.zip"


@pytest.mark.parametrize(
    "name", ["arxiv/../../evil", "/etc/evil", "arxiv/raw\\..\\evil", "C:/evil", "../evil"]
)
def test_members_that_would_lie_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        InputError, match=r"has the member .* which would lie outside of its folder"
    ):
        prepare("ogbn-arxiv", root=tmp_path / "root", archive=_zip(tmp_path, "arxiv/raw/a", name))
    assert not list(tmp_path.rglob("evil*"))


def test_links_in_an_archive_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        link = zipfile.ZipInfo("arxiv/raw")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc")
    with pytest.raises(InputError, match=r"has the member 'arxiv/raw', which would lie outside"):
        prepare("ogbn-arxiv", root=tmp_path / "root", archive=tmp_path / "bad.zip")


def test_wrong_archives_are_told_apart(tmp_path: Path) -> None:
    root = tmp_path / "root"
    other = mini.archive_of(tmp_path, "ogbn-products")
    with pytest.raises(InputError, match=r"products.zip is the archive of ogbn-products, but that"):
        prepare("ogbn-arxiv", root=root, archive=other)
    with pytest.raises(
        InputError, match=r"is one with \['x'\], but that of ogbn-arxiv has the fol"
    ):
        prepare("ogbn-arxiv", root=root, archive=_zip(tmp_path, "x/y"))
    with pytest.raises(
        InputError, match=r"lacks the files of ogbn-arxiv \(its layout is none that"
    ):
        prepare("ogbn-arxiv", root=root, archive=_zip(tmp_path, "arxiv/raw/x"))
    files = mini.write_zip(tmp_path / "odd.zip", mini.mag(), "arxiv")
    with pytest.raises(InputError, match=r"its layout is that of ogbn-mag"):
        prepare("ogbn-arxiv", root=tmp_path / "second", archive=files)
    assert not (root / "ogbn_arxiv").exists()


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_truncated_archives_are_refused(tmp_path: Path, kept: float) -> None:
    archive = mini.archive_of(tmp_path, "ogbn-arxiv")
    data = archive.read_bytes()
    archive.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(InputError, match=r"arxiv.zip is damaged or its end is missing .*; get it"):
        prepare("ogbn-arxiv", root=tmp_path / "root", archive=archive)


def test_a_flipped_bit_in_an_archive_is_found(tmp_path: Path) -> None:
    archive = mini.archive_of(tmp_path, "ogbn-arxiv")
    with zipfile.ZipFile(archive) as opened:
        member = opened.getinfo("arxiv/raw/node-feat.csv.gz")
    data = bytearray(archive.read_bytes())
    data[member.header_offset + 60 + member.compress_size // 2] ^= 4
    archive.write_bytes(bytes(data))
    with pytest.raises(InputError, match=r"arxiv.zip is damaged or its end is missing"):
        prepare("ogbn-arxiv", root=tmp_path / "root", archive=archive)
    assert not (tmp_path / "root" / "ogbn_arxiv").exists()


def test_caches_of_torch_in_an_archive_are_left_there(tmp_path: Path) -> None:
    files = {**mini.arxiv(), "processed/geometric_data_processed.pt": b"pickle"}
    prepare(
        "ogbn-arxiv", root=tmp_path / "root", archive=mini.archive_of(tmp_path, "ogbn-arxiv", files)
    )
    assert not (tmp_path / "root" / "ogbn_arxiv" / "processed").exists()


def test_mistakes_of_prepare_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"no data set 'cora' to prepare; choose one of ogbn-arxiv"
    ):
        prepare("cora", root=tmp_path)
    with pytest.raises(InputError, match=r"--archive and --url exclude each other"):
        prepare("ogbn-arxiv", root=tmp_path, archive="a", url="b")
    with pytest.raises(InputError, match=r"there is no archive nosuch.zip; check the path"):
        prepare("ogbn-arxiv", root=tmp_path, archive="nosuch.zip")
    (tmp_path / "ogbn_arxiv").mkdir()
    with pytest.raises(InputError, match=r"lacks the raw files of ogbn-arxiv .*none that is known"):
        prepare("ogbn-arxiv", root=tmp_path)


def test_what_a_killed_call_had_downloaded_is_removed_by_the_next(tmp_path: Path) -> None:
    mini.write_folder(tmp_path / "ogbn_arxiv", mini.arxiv())
    left = [f".arxiv.{'0a' * 8}.zip", f".arxiv.{'0b' * 8}.zip.part", f".arxiv.{'0b' * 8}.zip.note"]
    others = [".arxiv.mine.zip", f".products.{'0a' * 8}.zip"]
    for name in (*left, *others):
        (tmp_path / name).touch()
    prepare("ogbn-arxiv", root=tmp_path)
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == sorted([*others, "ogbn-arxiv", "ogbn_arxiv"])


def test_a_folder_of_the_same_name_is_not_replaced(tmp_path: Path) -> None:
    mini.write_folder(tmp_path / "ogbn_arxiv", mini.arxiv())
    (tmp_path / "ogbn-arxiv").mkdir()
    with pytest.raises(InputError, match=r"ogbn-arxiv' was not made by distgnn datasets prepare"):
        datasets.load("ogbn-arxiv", root=tmp_path)


@pytest.mark.parametrize(("text", "reason"), [("{", "Expecting"), ("[]", "it is no object")])
def test_a_damaged_record_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    raw = mini.write_folder(tmp_path / "ogbn_arxiv", mini.arxiv())
    datasets.load("ogbn-arxiv", root=tmp_path)
    (tmp_path / "ogbn-arxiv" / "prepared.json").write_text(text)
    with pytest.raises(InputError, match=rf"prepared.json is damaged \({reason}.*prepare the data"):
        datasets.load("ogbn-arxiv", root=tmp_path)
    shutil.rmtree(tmp_path / "ogbn-arxiv")
    (raw / "archive.json").write_text("{")
    with pytest.raises(InputError, match=r"archive.json is damaged .*; remove it"):
        datasets.load("ogbn-arxiv", root=tmp_path)


def test_lack_of_room_is_said_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    archive = mini.archive_of(tmp_path, "ogbn-arxiv")
    with pytest.raises(InputError, match=r"needs 0.0 GiB, but 0.0 GiB are free"):
        prepare("ogbn-arxiv", root=tmp_path / "root", archive=archive)
    mini.write_folder(tmp_path / "ogbn_arxiv", mini.arxiv())
    with pytest.raises(InputError, match=r"ogbn-arxiv' needs 0.0 GiB, but 0.0 GiB are free"):
        datasets.load("ogbn-arxiv", root=tmp_path)


def test_arrays_inside_an_npz_are_read_in_slices(tmp_path: Path) -> None:
    from distgnn.datasets.ogb.member import open_member

    values = np.arange(1000.0).reshape(10, 100)
    path = tmp_path / "a.npz"
    for save in (np.savez, np.savez_compressed):
        save(path, a=values, b=values)
        member = open_member(path, "a")
        assert (member.shape, member.is_fortran) == ((10, 100), False)
        slices = list(member.slices(300))
        assert [part.size for part in slices] == [300, 300, 300, 100]
        np.testing.assert_array_equal(np.concatenate(slices), values.reshape(-1))
    file = io.BytesIO(path.read_bytes())
    path.write_bytes(file.getvalue()[:-100])
    with pytest.raises(InputError, match=r"a cannot be read"):
        open_member(path, "a")
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]


def test_an_archive_that_zipfile_unpacks_without_limit_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("arxiv/raw/edge.csv.gz", b"x")
    with pytest.raises(InputError, match=r"is damaged .*compressed by method 12.*; get it again"):
        prepare("ogbn-arxiv", root=tmp_path / "root", archive=tmp_path / "bad.zip")


def test_a_name_in_an_archive_that_is_no_text_is_damage(tmp_path: Path) -> None:
    path = _zip(tmp_path, "arxiv/raw/ü")
    path.write_bytes(path.read_bytes().replace("ü".encode(), b"\xff\xfe"))
    with pytest.raises(InputError, match=r"bad.zip is damaged or its end is missing"):
        prepare("ogbn-arxiv", root=tmp_path / "root", archive=path)
