"""Published layouts: which reader takes a file or folder, told by what is inside, and their names.

To add one, write its reader and its test in a file of their own, and a line in a table here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from distgnn.datasets.archive import array_names
from distgnn.datasets.array_folder import is_array_folder
from distgnn.datasets.errors import InputError
from distgnn.datasets.gnn_benchmark import is_gnn_benchmark, read_gnn_benchmark
from distgnn.datasets.heterophilous import is_heterophilous, read_heterophilous
from distgnn.datasets.matrix_market import (
    MATRIX_SUFFIXES,
    PROTEINS_FILES,
    is_proteins,
    read_matrix_market,
    read_proteins,
)
from distgnn.datasets.planetoid import is_planetoid, planetoid_files, read_planetoid
from distgnn.datasets.rdf import is_rdf, rdf_files, read_rdf
from distgnn.datasets.reddit import is_reddit, read_reddit, reddit_files
from distgnn.datasets.root import root_of
from distgnn.datasets.scipy_npz import is_scipy_npz, read_scipy_npz

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.datasets.graph import Graph

    Reader = Callable[[Path], Graph]


class _Layout(NamedTuple):
    """A published layout: how it is known, its reader, and the files that the reader reads."""

    is_layout: Callable[[Path], bool]
    read: Reader
    files: Callable[[Path], list[Path]]


def _itself(path: Path) -> list[Path]:
    return [path]


def _is_matrix(path: Path) -> bool:
    return path.name.endswith(MATRIX_SUFFIXES)


_LAYOUTS = (
    _Layout(is_reddit, read_reddit, reddit_files),
    _Layout(is_planetoid, read_planetoid, planetoid_files),
    _Layout(is_rdf, read_rdf, rdf_files),
    _Layout(is_proteins, read_proteins, _itself),
    _Layout(_is_matrix, read_matrix_market, _itself),
)
# By the names of the arrays inside.
_ARCHIVES: tuple[tuple[Callable[[frozenset[str]], bool], Reader], ...] = (
    (is_gnn_benchmark, read_gnn_benchmark),
    (is_heterophilous, read_heterophilous),
    (is_scipy_npz, read_scipy_npz),
)


def _rdf(name: str) -> tuple[str, ...]:
    return (f"{name}_stripped.nt.gz", f"{name}_stripped.nt")


NAMED: dict[str, tuple[str, ...]] = {
    "aifb": _rdf("aifb"),
    "am": _rdf("am"),
    "amazon-computers": ("amazon_electronics_computers.npz", "amazon_cs.npz"),
    "amazon-photo": ("amazon_electronics_photo.npz", "amazon_photo.npz"),
    "amazon-ratings": ("amazon_ratings.npz",),
    "bgs": _rdf("bgs"),
    "chameleon-filtered": ("chameleon_filtered.npz",),
    "citeseer": ("ind.citeseer.graph",),
    "coauthor-cs": ("ms_academic_cs.npz", "coauthor_cs.npz"),
    "coauthor-physics": ("ms_academic_phy.npz", "coauthor_phy.npz"),
    "minesweeper": ("minesweeper.npz",),
    "mutag": _rdf("mutag"),
    "nell": ("ind.nell.0.001.graph", "ind.nell.0.01.graph", "ind.nell.0.1.graph"),
    "proteins": PROTEINS_FILES,
    "pubmed": ("ind.pubmed.graph",),
    "questions": ("questions.npz",),
    "reddit": ("reddit_graph.npz", "reddit.zip"),
    "roman-empire": ("roman_empire.npz",),
    "squirrel-filtered": ("squirrel_filtered.npz",),
    "tolokers": ("tolokers.npz",),
}
"""Names of graphs that users bring, and their published files; any one tells where a graph is."""


def reader_of(path: Path) -> Reader | None:
    """Return the reader of a published layout; None for what has none of them.

    Args:
        path: A file or folder.
    """
    layout = _layout_of(path)
    if layout is not None:
        return layout.read
    if path.suffix != ".npz" or not path.is_file():
        return None
    names = array_names(path)
    return next((reader for is_layout, reader in _ARCHIVES if is_layout(names)), None)


def files_of(path: Path) -> list[Path]:
    """List the files that a graph is read from.

    Args:
        path: A file or folder that `datasets.load` takes.

    Returns:
        The files in a fixed order: those of a published layout, the arrays of an array folder, all
        files of another folder, or the file itself. Some may not be there.

    Raises:
        InputError: If a folder has several graphs.
    """
    if path.is_dir() and is_array_folder(path):
        return sorted(path.glob("*.npy"))
    if (layout := _layout_of(path)) is not None:
        return layout.files(path)
    return sorted(path.iterdir()) if path.is_dir() else [path]


def _layout_of(path: Path) -> _Layout | None:
    return next((layout for layout in _LAYOUTS if layout.is_layout(path)), None)


def locate(source: str, root: str | Path | None = None) -> str:
    """Return the path of a graph that is named; any other source as it is.

    A file or folder of that name wins. Else a name stands for a folder or an .npz file of that name
    below the root. Last, it stands for its published files: in the root, in a folder of its name,
    or in `raw` of any folder.

    Args:
        source: A name, a path, or anything else that `load` takes.
        root: Where named graphs lie; None for `DISTGNN_DATASETS` or ./dataset.

    Raises:
        InputError: If the name is known and its files are not there.
    """
    if Path(source).exists() or source != Path(source).name:
        return source
    folder = root_of(root)
    if (found := _below(folder, source)) is not None:
        return str(found)
    if source in NAMED:
        raise InputError(f"dataset {source!r} is not in {folder}; {_how_to_bring(source, folder)}")
    return str(folder / source) if (folder / source).exists() else source


def describe_named(name: str, root: str | Path | None = None) -> dict[str, Any]:
    """Describe a graph that users bring, without reading it.

    Args:
        name: A key of `NAMED`.
        root: Where named graphs lie; None for `DISTGNN_DATASETS` or ./dataset.

    Returns:
        `path`, where it lies, or None; and `bring`, a sentence about what to put where.
    """
    folder = root_of(root)
    found = _below(folder, name)
    path = None if found is None else str(found)
    return {"path": path, "bring": _how_to_bring(name, folder)}


def _below(folder: Path, name: str) -> Path | None:
    """Return where a named graph lies below the root, or None if its files are not there."""
    # PyG's folders are called as its users call a graph: PubMed, Computers, AIFB.
    places = [folder / name, folder / name / "raw", folder, *sorted(folder.glob("*/raw"))]
    found = [place / file for place in places for file in NAMED.get(name, ())]
    found = [file for file in (*found, folder / f"{name}.npz") if file.is_file()]
    if not found:
        return None
    # Reddit is two files; whichever is asked for, the folder has both.
    is_half = (name, found[0].name) == ("reddit", "reddit_graph.npz")
    return found[0].parent if is_half else found[0]


def _how_to_bring(name: str, folder: Path) -> str:
    return (
        f"put {' or '.join(NAMED[name])}, with the files published beside it, into "
        f"{folder / name}, or say by --root DIR or DISTGNN_DATASETS where it is"
    )
