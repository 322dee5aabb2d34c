"""Conversion of a name, an archive or a folder of OGB into an array folder, done once."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.disk import check_room
from distgnn.datasets.errors import InputError
from distgnn.datasets.npz import sha256
from distgnn.datasets.ogb import binary, plain, typed
from distgnn.datasets.ogb.arrays import Target
from distgnn.datasets.ogb.catalogue import (
    BINARY,
    CATALOGUE,
    PLAIN,
    TYPED,
    Published,
    published_of,
    refuse_links,
)
from distgnn.datasets.ogb.unpack import ArchiveError, unpack
from distgnn.datasets.root import VARIABLE, root_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distgnn.datasets.ogb.arrays import Progress, Stages

_LOGGER = logging.getLogger(__name__)
_STAGES: dict[str, Stages] = {BINARY: binary.stages, PLAIN: plain.stages, TYPED: typed.stages}
# Version of the array folders; those of another one are made again. Data sets whose edges have
# features got these in version 2.
_FORMAT, _EDGE_FORMAT = 1, 2
_PREPARED, _ARCHIVE = "prepared.json", "archive.json"
_TAIL_BYTES = 1 << 16
# Digits of the hash of a URL in the name of the hidden file that is downloaded from it.
_MARK_DIGITS = 16


def located(
    source: str | Path,
    root: str | Path | None = None,
    *,
    is_reversed: bool = False,
    progress: Progress = None,
) -> str | Path:
    """Turn the name of a data set of OGB, or a folder with its raw files, into an array folder.

    The array folder ROOT/ogbn-NAME lies beside OGB's own ROOT/ogbn_NAME and is made when it is
    missing or the raw files have changed.

    Args:
        source: A name or a path; a file or folder of that name wins over the name.
        root: Where names are looked up; None for `DISTGNN_DATASETS` or ./dataset.
        is_reversed: Whether the reverses of edges are to be added; if not, users who compare with
            published figures are told.
        progress: Called with one line of text now and then.

    Returns:
        The array folder; the source itself if it is none of OGB's.

    Raises:
        InputError: If the data set is not there, is one of links, or its files are missing or
            damaged; or if the array folder cannot be written.
    """
    refuse_links(source)
    published = _named(source, root)
    if published is not None:
        base = root_of(root)
        raw, arrays = base / published.folder, base / published.name
        if not raw.is_dir() and not (arrays / _PREPARED).is_file():
            raise InputError(
                f"{published.name} is not in {str(base)!r}; run distgnn datasets prepare "
                f"{published.name} --root {base}, or say with --root or {VARIABLE} where "
                f"{published.folder} lies"
            )
    else:
        raw = Path(source)
        published = published_of(raw) if raw.is_dir() else None
        if published is None:
            return source
        arrays = raw.resolve().parent / published.name
    if not _is_prepared(published, raw, arrays):
        try:
            with _locked(arrays.parent):
                _convert(published, raw, arrays, progress)
        except OSError as error:
            raise InputError(
                f"{str(arrays)!r} cannot be made ({error}); run distgnn datasets prepare "
                f"{published.name} --archive {raw} --root DIR with a folder that can be written to"
            ) from error
    _log_notes(published, is_reversed=is_reversed)
    return arrays


def _named(source: str | Path, root: str | Path | None) -> Published | None:
    """The data set whose name a source is, unless something else has that path."""
    published = CATALOGUE.get(str(source))
    if published is None or not Path(source).exists():
        return published
    # Where the root is the working directory: this is what is made under that name.
    arrays = root_of(root) / published.name
    return published if (arrays / _PREPARED).is_file() and arrays.samefile(source) else None


def prepare(
    name: str,
    *,
    root: str | Path | None = None,
    archive: str | Path | None = None,
    url: str | None = None,
    progress: Progress = None,
) -> dict[str, Any]:
    """Download, unpack and convert a data set; what is there already is not made again.

    Args:
        name: A key of `CATALOGUE`.
        root: Where it is written; None for `DISTGNN_DATASETS` or ./dataset.
        archive: The zip file, got by other means, or a folder that it was unpacked to.
        url: Where the archive is; None for OGB's own site.
        progress: Called with one line of text now and then.

    Returns:
        Description of the array folder, JSON values.

    Raises:
        InputError: If the name is unknown, the archive cannot be got or is damaged, or the disk
            lacks room.
    """
    refuse_links(name)
    if name not in CATALOGUE:
        raise InputError(
            f"there is no data set {name!r} to prepare; choose one of {', '.join(CATALOGUE)}"
        )
    if archive is not None and url is not None:
        raise InputError("--archive and --url exclude each other; leave one of them out")
    published, base = CATALOGUE[name], root_of(root)
    raw, arrays = base / published.folder, base / published.name
    given = None if archive is None else Path(archive)
    try:
        base.mkdir(parents=True, exist_ok=True)
        with _locked(base):
            if given is not None and given.is_dir():
                raw = given
            elif not (raw.is_dir() or _is_prepared(published, raw, arrays)):
                _get(published, raw, given, url or published.url, progress)
            elif given is not None or url is not None:
                there = [str(folder) for folder in (raw, arrays) if folder.is_dir()]
                _LOGGER.warning(
                    "%s is there already, so %s is not read; to prepare it anew, remove %s",
                    name,
                    given or url,
                    " and ".join(there),
                )
            # What was downloaded is unpacked, perhaps by a call that was killed after that.
            for leftover in base.glob(f".{published.archive}.{'[0-9a-f]' * _MARK_DIGITS}.zip*"):
                leftover.unlink()
            _convert(published, raw, arrays, progress)
    except OSError as error:
        raise InputError(
            f"{name} cannot be written to {str(base)!r} ({error}); make room there, or "
            "choose another folder with --root"
        ) from error
    return {**_record(arrays), "directory": str(arrays)}


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time write data sets to a folder; the others wait."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _get(
    published: Published, raw: Path, archive: Path | None, url: str, progress: Progress
) -> None:
    """Unpack the archive, after downloading it if none is given and none lies beside the folder."""
    zipped = raw.with_name(f"{published.archive}.zip") if archive is None else archive
    is_ours = archive is None and not zipped.exists()
    if archive is None and not is_ours:
        _LOGGER.warning("%s lies there, so it is used and nothing is downloaded", zipped)
    if is_ours:
        zipped = _downloaded(published, raw, url, progress)
    if not zipped.is_file():
        raise InputError(f"there is no archive {zipped}; check the path")
    # OGB publishes no checksum; the one of what came is kept, so that copies can be compared.
    about = {"file": zipped.name, "bytes": zipped.stat().st_size, "sha256": sha256([zipped])}
    if is_ours:
        about.update(file=f"{published.archive}.zip", url=url)
    try:
        unpack(zipped, published, raw, progress)
    except ArchiveError as error:
        if not is_ours:
            raise
        zipped.unlink()
        raise ArchiveError(
            f"{error}; what {url} sent is removed, so that the next call downloads it again"
        ) from error
    (raw / _ARCHIVE).write_text(json.dumps(about, indent=1) + "\n")


def _downloaded(published: Published, raw: Path, url: str, progress: Progress) -> Path:
    """Return the archive of a URL, downloaded unless an earlier call did it."""
    from distgnn.datasets.download import download

    # By its name the file is ours, and of this URL: neither another one nor one that a user put
    # there is taken for it.
    mark = hashlib.sha256(url.encode()).hexdigest()[:_MARK_DIGITS]
    zipped = raw.with_name(f".{published.archive}.{mark}.zip")
    if not zipped.exists():
        if progress is not None:
            progress(f"downloading {url}")
        download(url, zipped, progress=progress)
    return zipped


def _convert(published: Published, raw: Path, arrays: Path, progress: Progress) -> None:
    """Make the array folder, unless it is there; continues where it was interrupted."""
    if _is_prepared(published, raw, arrays):
        return
    if not raw.is_dir():
        raise InputError(
            f"{str(arrays)!r} was made by another version of distgnn, and its raw files are gone; "
            f"run distgnn datasets prepare {published.name} --root {arrays.parent}"
        )
    found = published_of(raw)
    if found is not published:
        has = "none that is known" if found is None else f"of {found.name}"
        raise InputError(
            f"{str(raw)!r} lacks the raw files of {published.name} (its layout is {has}); remove "
            f"it and run distgnn datasets prepare {published.name}"
        )
    work = arrays.with_name(f".{arrays.name}.preparing")
    origin = _fingerprint(raw)
    if not (work / origin).is_file():
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        (work / origin).touch()
    for leftover in work.glob(".*"):
        leftover.unlink()
    counts = _sizes(published, raw)
    check_room(arrays, _num_bytes(published, counts) - _used_bytes(work))
    if progress is not None:
        progress(f"{published.name}: converting {counts[0]} vertices and {counts[1]} edges, once")
    target = Target(work, published.name, progress)
    for stage in _STAGES[published.layout](published, raw, target):
        if not all((work / file).is_file() for file in stage.files):
            stage.write()
    np.save(work / "num_vertices.npy", np.asarray(counts[0]))
    np.save(work / "metric.npy", np.asarray(published.metric))
    record = {
        "format": _format(published),
        "name": published.name,
        "num_vertices": counts[0],
        "num_edges": counts[1],
        "origin": origin,
        "archive": _archive_of(raw),
    }
    (work / _PREPARED).write_text(json.dumps(record, indent=1) + "\n")
    (work / origin).unlink()
    _replace(arrays, work)


def _replace(arrays: Path, work: Path) -> None:
    """Put a finished folder under its name; a moment at most there is none."""
    old = arrays.with_name(f".{arrays.name}.replaced")
    shutil.rmtree(old, ignore_errors=True)
    if arrays.exists():
        arrays.rename(old)
    work.rename(arrays)
    # Others may read it still; where that hinders its removal, the next call tries again.
    shutil.rmtree(old, ignore_errors=True)


def _sizes(published: Published, raw: Path) -> tuple[int, int]:
    """Return the numbers of vertices and of directed edges."""
    if published.layout == BINARY:
        return binary.sizes(raw / "raw")
    if published.layout == TYPED:
        types = typed.read_types(raw / "raw")
        return types.num_all, types.num_edges
    num_vertices, num_stored = plain.sizes(raw / "raw")
    return num_vertices, num_stored * (2 if published.is_both_ways else 1)


def _num_bytes(published: Published, sizes: tuple[int, int]) -> int:
    """Return about what the arrays take on disk."""
    num_vertices, num_edges = sizes
    type_bytes = 8 if published.layout == TYPED else 0
    edge_bytes = 2 * 4 + type_bytes + 4 * published.num_edge_features
    return num_edges * edge_bytes + num_vertices * (4 * published.num_features + 11 + type_bytes)


def _used_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def _is_prepared(published: Published, raw: Path, arrays: Path) -> bool:
    """Return whether the array folder is there and made of these raw files, if there are any."""
    if not arrays.exists():
        return False
    if not (arrays / _PREPARED).is_file():
        raise InputError(
            f"{str(arrays)!r} was not made by distgnn datasets prepare, which would replace it; "
            "rename it and give its path"
        )
    record = _record(arrays)
    if record.get("format") != _format(published):
        return False
    return not (raw / "raw").is_dir() or record.get("origin") == _fingerprint(raw)


def _format(published: Published) -> int:
    """Return the version of a data set's array folder."""
    return _EDGE_FORMAT if published.num_edge_features else _FORMAT


def _record(arrays: Path) -> dict[str, Any]:
    path = arrays / _PREPARED
    try:
        record = json.loads(path.read_text())
        if not isinstance(record, dict):
            raise ValueError("it is no object")
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is damaged ({error}); remove {str(arrays)!r} and prepare the data set again"
        ) from error
    return record


def _archive_of(raw: Path) -> dict[str, Any] | None:
    path = raw / _ARCHIVE
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}); remove it") from error
    return found if isinstance(found, dict) else None


def _fingerprint(raw: Path) -> str:
    """Return what differs as soon as raw files differ: gzip and zip keep checksums at their end."""
    digest = hashlib.sha256(str(_FORMAT).encode())
    for folder in (raw / "raw", raw / "split"):
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.suffix in (".gz", ".npz"):
                size = file.stat().st_size
                digest.update(f"{file.relative_to(raw)} {size}\n".encode())
                with file.open("rb") as opened:
                    opened.seek(max(size - _TAIL_BYTES, 0))
                    digest.update(opened.read())
    return digest.hexdigest()


def _log_notes(published: Published, *, is_reversed: bool) -> None:
    for note in published.notes:
        _LOGGER.warning("%s: %s", published.name, note)
    if not (published.is_both_ways or is_reversed):
        flag = "--inverse-relations" if published.layout == TYPED else "--undirected"
        _LOGGER.warning(
            "%s: edges are directed as published, while OGB's baselines add the reverse of each; "
            "%s does that",
            published.name,
            flag,
        )
