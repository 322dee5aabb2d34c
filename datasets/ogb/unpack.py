"""An archive of OGB unpacked into the folder that OGB's own package would make of it."""

from __future__ import annotations

import os
import shutil
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from distgnn.datasets.archive import open_packed
from distgnn.datasets.disk import check_room
from distgnn.datasets.errors import InputError
from distgnn.datasets.ogb.catalogue import CATALOGUE, published_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.datasets.ogb.catalogue import Published

_BLOCK_BYTES = 1 << 20
# OGB's caches of torch, which are pickles, lie in processed/.
_FOLDERS = ("raw", "split", "mapping")


class ArchiveError(InputError):
    """The archive itself is at fault: damaged, or another one."""


def unpack(
    archive: Path,
    published: Published,
    folder: Path,
    progress: Callable[[str], None] | None = None,
) -> None:
    """Unpack an archive; the folder appears under its name when it is complete.

    After an interruption the same call continues with the members that are missing.

    Args:
        archive: A zip file.
        published: The data set that it must hold.
        folder: Folder that the data set becomes.
        progress: Called with one line of text now and then.

    Raises:
        ArchiveError: If the file is damaged or no such archive, or a member would lie outside of
            the folder.
        InputError: If the disk lacks room.
        OSError: If the disk is full.
    """
    work = folder.with_name(f".{folder.name}.unpacking")
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [
                (path, member)
                for path, member in _members(archive, opened, published)
                if path.parts[0] in _FOLDERS or len(path.parts) == 1
            ]
            missing = [pair for pair in members if not _is_there(work / pair[0], pair[1])]
            check_room(work, sum(member.file_size for _, member in missing))
            for number, (path, member) in enumerate(missing, 1):
                if progress is not None:
                    size = member.file_size / 2**20
                    progress(f"unpacking {path}, {size:.0f} MiB ({number} of {len(missing)})")
                _extract(opened, member, work / path)
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError) as error:
        raise ArchiveError(
            f"{archive} is damaged or its end is missing ({error}); get it again from "
            f"{published.url}"
        ) from error
    found = published_of(work)
    if found is not published:
        has = "none that is known" if found is None else f"that of {found.name}"
        raise ArchiveError(
            f"{archive} lacks the files of {published.name} (its layout is {has}); get it again "
            f"from {published.url}"
        )
    work.rename(folder)


def _members(
    archive: Path, opened: zipfile.ZipFile, published: Published
) -> list[tuple[PurePosixPath, zipfile.ZipInfo]]:
    """Return the files of an archive and their paths inside the folder of the data set."""
    found = []
    tops = []
    for member in opened.infolist():
        path = PurePosixPath(member.filename)
        is_link = stat.S_ISLNK(member.external_attr >> 16)
        is_odd = any(mark in member.filename for mark in "\\:\0")
        if path.is_absolute() or ".." in path.parts or is_odd or is_link:
            raise ArchiveError(
                f"{archive} has the member {member.filename!r}, which would lie outside of its "
                f"folder; it is not OGB's archive, so get that from {published.url}"
            )
        if member.is_dir() or not path.parts:
            continue
        tops.append(path.parts[0])
        if len(path.parts) > 1 and path.parts[0] == published.archive:
            found.append((path.relative_to(published.archive), member))
    if not found:
        others = [one.name for one in CATALOGUE.values() if one.archive in tops]
        holds = f"the archive of {others[0]}" if others else f"one with {sorted(set(tops))[:3]}"
        raise ArchiveError(
            f"{archive} is {holds}, but that of {published.name} has the folder "
            f"{published.archive!r}; give the right one, from {published.url}"
        )
    return found


def _is_there(path: Path, member: zipfile.ZipInfo) -> bool:
    if not path.is_file() or path.stat().st_size != member.file_size:
        return False
    found = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            found = zlib.crc32(block, found)
    return found == member.CRC


def _extract(opened: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    # At its end the stream checks the CRC of what was read.
    with open_packed(opened, member.filename) as source, temporary.open("wb") as target:
        shutil.copyfileobj(source, target, _BLOCK_BYTES)
        target.flush()
        os.fsync(target.fileno())
    temporary.replace(path)
