"""Files from the network, on request only: resumed where they were interrupted, and retried."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distgnn.datasets.disk import check_room
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_BLOCK_BYTES = 1 << 20
_TIMEOUT_S = 60.0
_REPORT_S = 5.0
_PATIENCE = (1.0, 4.0, 15.0, 60.0)
# Faults that go away by themselves: timeouts, too many requests, and faults of the server.
_PASSING = (408, 425, 429, 500, 502, 503, 504)
_NETWORK = (
    urllib.error.URLError,
    http.client.HTTPException,
    ssl.SSLError,
    TimeoutError,
    ConnectionError,
)


@dataclass(frozen=True)
class _Part:
    """Part of a file that is there.

    Attributes:
        file: Its beginning.
        note: Mark of the file on the server, which shows whether it is still the same.
    """

    file: Path
    note: Path

    @property
    def size(self) -> int:
        return self.file.stat().st_size if self.file.is_file() else 0

    def validator(self, url: str) -> str:
        """Return the server's mark of the file, "" if it is unknown or of another URL."""
        try:
            found = json.loads(self.note.read_text())
        except (OSError, ValueError, RecursionError):
            return ""
        is_of_url = isinstance(found, dict) and found.get("url") == url
        return str(found.get("validator", "")) if is_of_url else ""

    def remove(self) -> None:
        self.file.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def download(
    url: str,
    target: Path,
    *,
    progress: Callable[[str], None] | None = None,
    patience: tuple[float, ...] = _PATIENCE,
) -> None:
    """Download a file, which appears under its name when it is complete.

    The part that has arrived lies beside it under the suffix .part. It is not requested again as
    long as the server says that its file is the same.

    Args:
        url: Address, with http or https.
        target: The file to write.
        progress: Called with one line of text now and then.
        patience: Seconds to wait before each retry; retries that bring nothing new count.

    Raises:
        InputError: If the server refuses, or cannot be reached as often as that; or if the disk
            lacks room.
        OSError: If the disk is full.
    """
    if not url.startswith(("http://", "https://")):
        raise InputError(f"a URL begins with http:// or https://, got {url!r}; correct it")
    part = _Part(target.with_name(f"{target.name}.part"), target.with_name(f"{target.name}.note"))
    waits = list(patience)
    while True:
        before = part.size
        try:
            if _fetch(url, part, progress):
                break
            reason: object = "the connection ended early"
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:
                if error.headers.get("Content-Range") == f"bytes */{part.size}":
                    break  # an earlier run was interrupted after the last byte
                part.remove()
            elif error.code not in _PASSING:
                raise InputError(
                    f"{url} answers {error.code} {error.reason}; check the address, or get the "
                    "file by other means and give it with --archive"
                ) from error
            reason = f"{error.code} {error.reason}"
        except _NETWORK as error:
            reason = getattr(error, "reason", None) or error or type(error).__name__
        if part.size > before:
            waits = list(patience)
        if not waits:
            raise InputError(
                f"{url} cannot be read ({reason}); the {part.size} bytes that are there are kept, "
                "so try again, or get the file by other means and give it with --archive"
            )
        if progress is not None:
            progress(f"{reason}; trying again in {waits[0]:g} s")
        time.sleep(waits.pop(0))
    part.file.replace(target)
    part.note.unlink(missing_ok=True)


def _fetch(url: str, part: _Part, progress: Callable[[str], None] | None) -> bool:
    """Fetch what is missing; return whether the file is complete."""
    start, validator = part.size, part.validator(url)
    if not validator:
        start = 0
    request = urllib.request.Request(url)
    if start:
        request.add_header("Range", f"bytes={start}-")
        request.add_header("If-Range", validator)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        if answer.status != 206:
            start = 0  # the server sends all of it: its file is another, or it cannot resume
            _take_note(answer.headers, url, part)
        elif not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise http.client.HTTPException("the server sends another range than was asked for")
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length is not None and length.isdecimal() else None
        check_room(part.file, (total or 0) - start)
        with part.file.open("r+b" if start else "wb") as file:
            file.seek(start)
            done, is_whole = _copy(answer, file, (start, total), progress)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
    return is_whole and total in (None, done)


def _take_note(headers: Any, url: str, part: _Part) -> None:
    # A weak mark does not promise the same bytes.
    mark = headers.get("ETag") or ""
    validator = headers.get("Last-Modified") or "" if mark.startswith("W/") or not mark else mark
    part.note.write_text(json.dumps({"url": url, "validator": validator}))


def _copy(
    answer: Any, file: Any, span: tuple[int, int | None], progress: Callable[[str], None] | None
) -> tuple[int, bool]:
    """Copy the body of an answer; return how many bytes of the file there are, and if it ended."""
    done, total = span
    is_whole = True
    reported = time.monotonic()
    while True:
        try:
            block = answer.read(_BLOCK_BYTES)
        except http.client.IncompleteRead as error:
            # A body in chunks names no length: this alone tells that its last chunk is missing.
            block, is_whole = error.partial, False
        if not block:
            return done, is_whole
        file.write(block)
        done += len(block)
        if progress is not None and time.monotonic() - reported > _REPORT_S:
            reported = time.monotonic()
            of = "" if total is None else f" of {total / 2**20:.0f}"
            progress(f"downloaded {done / 2**20:.0f}{of} MiB")
