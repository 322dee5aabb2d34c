from __future__ import annotations

import hashlib
import re
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import ogb_archives as mini
import pytest

from distgnn.datasets import InputError
from distgnn.datasets.download import download
from distgnn.datasets.ogb import prepare

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATA = bytes(range(256)) * 40
QUICK = (0.0, 0.0)


class Site(ThreadingHTTPServer):
    """One file, served as well or as badly as a test says."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.data = DATA
        self.etag = '"one"'
        self.faults: list[Any] = []  # a status to answer, or the bytes after which to hang up
        self.resumes = True
        self.in_chunks = False  # which tells no length
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file.zip"


class Handler(BaseHTTPRequestHandler):
    server: Site
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        site = self.server
        wanted = self.headers.get("Range")
        site.asked.append(wanted)
        fault = site.faults.pop(0) if site.faults else None
        if isinstance(fault, int):
            self.send_error(fault)
            return
        start = 0
        if wanted and site.resumes and self.headers.get("If-Range") == site.etag:
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])  # type: ignore[index]
        if start >= len(site.data):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(site.data)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            begin = fault[1] if isinstance(fault, tuple) else start
            self.send_header(
                "Content-Range", f"bytes {begin}-{len(site.data) - 1}/{len(site.data)}"
            )
        if site.in_chunks:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(site.data) - start))
        self.send_header("ETag", site.etag)
        self.end_headers()
        body = site.data[start:]
        sent = body[: len(fault)] if isinstance(fault, bytes) else body
        if site.in_chunks:
            end = b"" if isinstance(fault, bytes) else b"0\r\n\r\n"
            sent = b"%x\r\n%s\r\n%s" % (len(sent), sent, end)
        self.wfile.write(sent)
        self.close_connection = True


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Site()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def cut(num_bytes: int) -> bytes:
    """The fault of hanging up after so many bytes."""
    return bytes(num_bytes)


def test_a_file_arrives_whole_and_alone(tmp_path: Path, site: Site) -> None:
    download(site.url, tmp_path / "f.zip", patience=QUICK)
    assert (tmp_path / "f.zip").read_bytes() == DATA
    assert [path.name for path in tmp_path.iterdir()] == ["f.zip"]


def test_a_broken_connection_is_resumed_where_it_broke(tmp_path: Path, site: Site) -> None:
    # More faults than there is patience for: each brought something new.
    site.faults = [cut(1000), cut(2000), cut(3000), cut(10)]
    said: list[str] = []
    download(site.url, tmp_path / "f.zip", patience=QUICK, progress=said.append)
    assert (tmp_path / "f.zip").read_bytes() == DATA
    assert site.asked == [None, "bytes=1000-", "bytes=3000-", "bytes=6000-", "bytes=6010-"]
    assert said.count("the connection ended early; trying again in 0 s") == 4


def test_a_body_in_chunks_that_is_cut_is_resumed(tmp_path: Path, site: Site) -> None:
    site.in_chunks = True
    site.faults = [cut(1000), cut(1)]
    download(site.url, tmp_path / "f.zip", patience=QUICK)
    assert site.asked == [None, "bytes=1000-", "bytes=1001-"]
    assert (tmp_path / "f.zip").read_bytes() == DATA


def test_passing_faults_are_retried_and_lasting_ones_end_it(tmp_path: Path, site: Site) -> None:
    site.faults = [503, 429]
    download(site.url, tmp_path / "f.zip", patience=QUICK)
    assert (tmp_path / "f.zip").read_bytes() == DATA
    site.faults = [cut(77), 500, 500, 500]
    with pytest.raises(InputError, match=r"\(500 .*\); the 77 bytes that are there are kept, so"):
        download(site.url, tmp_path / "g.zip", patience=QUICK)
    site.faults = [404]
    with pytest.raises(InputError, match="answers 404 Not Found; check the address, or get"):
        download(site.url, tmp_path / "h.zip", patience=QUICK)
    # A later call goes on.
    site.asked = []
    download(site.url, tmp_path / "g.zip", patience=QUICK)
    assert site.asked == ["bytes=77-"]
    assert (tmp_path / "g.zip").read_bytes() == DATA


def test_a_file_that_changed_meanwhile_is_fetched_anew(tmp_path: Path, site: Site) -> None:
    site.faults = [cut(1000), 404]
    with pytest.raises(InputError, match="answers 404"):
        download(site.url, tmp_path / "f.zip", patience=QUICK)
    site.data, site.etag = DATA[::-1], '"two"'
    download(site.url, tmp_path / "f.zip", patience=QUICK)
    assert (tmp_path / "f.zip").read_bytes() == DATA[::-1]


@pytest.mark.parametrize("etag", ["", 'W/"weak"'])
def test_without_a_mark_of_the_file_it_begins_anew(tmp_path: Path, site: Site, etag: str) -> None:
    site.etag = etag
    site.faults = [cut(1000)]
    download(site.url, tmp_path / "f.zip", patience=QUICK)
    assert site.asked == [None, None]
    assert (tmp_path / "f.zip").read_bytes() == DATA


def test_a_site_that_cannot_resume_is_asked_for_all(tmp_path: Path, site: Site) -> None:
    site.resumes = False
    site.faults = [cut(1000)]
    download(site.url, tmp_path / "f.zip", patience=QUICK)
    assert (tmp_path / "f.zip").read_bytes() == DATA


def test_an_answer_of_another_range_is_not_taken(tmp_path: Path, site: Site) -> None:
    site.faults = [cut(1000), ("begins at", 7)]
    download(site.url, tmp_path / "f.zip", patience=QUICK)
    assert (tmp_path / "f.zip").read_bytes() == DATA


def test_an_interruption_after_the_last_byte_costs_nothing(tmp_path: Path, site: Site) -> None:
    site.faults = [cut(len(DATA) - 1), 404]
    with pytest.raises(InputError, match="answers 404"):
        download(site.url, tmp_path / "f.zip", patience=QUICK)
    (tmp_path / "f.zip.part").write_bytes(DATA)
    download(site.url, tmp_path / "f.zip", patience=QUICK)
    assert site.asked[-1] == f"bytes={len(DATA)}-"
    assert (tmp_path / "f.zip").read_bytes() == DATA


def test_a_part_longer_than_the_file_is_dropped(tmp_path: Path, site: Site) -> None:
    site.faults = [cut(1000), 404]
    with pytest.raises(InputError, match="answers 404"):
        download(site.url, tmp_path / "f.zip", patience=QUICK)
    (tmp_path / "f.zip.part").write_bytes(DATA + b"more")
    download(site.url, tmp_path / "f.zip", patience=QUICK)
    assert (tmp_path / "f.zip").read_bytes() == DATA


def test_nobody_at_the_other_end_is_said(tmp_path: Path, site: Site) -> None:
    url = site.url
    site.server_close()
    with pytest.raises(InputError, match=r"cannot be read \(.*refused.*\); the 0 bytes that are"):
        download(url, tmp_path / "f.zip", patience=QUICK)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://a/b", "x"])
def test_only_http_is_asked(tmp_path: Path, url: str) -> None:
    with pytest.raises(InputError, match="a URL begins with http:// or https://, got"):
        download(url, tmp_path / "f.zip")


def test_a_data_set_is_downloaded_unpacked_and_converted(tmp_path: Path, site: Site) -> None:
    archive = mini.write_zip(tmp_path / "a.zip", mini.arxiv(), "arxiv")
    site.data = archive.read_bytes()
    site.faults = [cut(300)]
    made = prepare("ogbn-arxiv", root=tmp_path / "root", url=site.url, progress=lambda _: None)
    assert made["archive"]["url"] == site.url
    assert made["archive"]["sha256"] == hashlib.sha256(site.data).hexdigest()
    assert site.asked == [None, "bytes=300-"]
    kept = sorted(path.name for path in (tmp_path / "root").iterdir())
    assert kept == ["ogbn-arxiv", "ogbn_arxiv"]
    again = prepare("ogbn-arxiv", root=tmp_path / "root", url=site.url)
    assert again == made
    assert len(site.asked) == 2


def test_what_a_site_sends_instead_of_an_archive_is_not_kept(tmp_path: Path, site: Site) -> None:
    site.data = b"<html>Please log in</html>"
    with pytest.raises(InputError, match=r"is damaged .*; what http.* sent is removed, so that"):
        prepare("ogbn-arxiv", root=tmp_path / "root", url=site.url)
    site.data = mini.write_zip(tmp_path / "a.zip", mini.arxiv(), "arxiv").read_bytes()
    made = prepare("ogbn-arxiv", root=tmp_path / "root", url=site.url)
    assert made["num_vertices"] == 12


def test_an_archive_that_lacks_room_to_unpack_is_not_fetched_twice(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.data = mini.write_zip(tmp_path / "a.zip", mini.arxiv(), "arxiv").read_bytes()
    usage = shutil.disk_usage(tmp_path)
    free = iter([usage.free, 0])  # for the download, and to unpack it
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: usage._replace(free=next(free)))
        with pytest.raises(InputError, match=r"GiB are free; make room"):
            prepare("ogbn-arxiv", root=tmp_path / "root", url=site.url)
    prepare("ogbn-arxiv", root=tmp_path / "root", url=site.url)
    assert len(site.asked) == 1
    kept = sorted(path.name for path in (tmp_path / "root").iterdir())
    assert kept == ["ogbn-arxiv", "ogbn_arxiv"]
