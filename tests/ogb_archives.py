"""Miniature archives of the Open Graph Benchmark in the layouts that it publishes."""

from __future__ import annotations

import gzip
import io
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Files = dict[str, bytes]
TOPS = {
    "ogbn-arxiv": "arxiv",
    "ogbn-products": "products",
    "ogbn-proteins": "proteins",
    "ogbn-papers100M": "papers100M-bin",
    "ogbn-mag": "mag",
}
NUM_VERTICES = 12
NUM_PAPERS, NUM_AUTHORS, NUM_INSTITUTIONS, NUM_FIELDS = 6, 4, 2, 3
RELATIONS = (
    ("author", "affiliated_with", "institution", NUM_AUTHORS, NUM_INSTITUTIONS),
    ("author", "writes", "paper", NUM_AUTHORS, NUM_PAPERS),
    ("paper", "cites", "paper", NUM_PAPERS, NUM_PAPERS),
    ("paper", "has_topic", "field_of_study", NUM_PAPERS, NUM_FIELDS),
)


def text(data: bytes) -> bytes:
    """A gzipped file, of the same bytes at any time."""
    return gzip.compress(data, mtime=0)


def table(rows: Any, header: str = "") -> bytes:
    """A gzipped table as pandas writes it; floats have six digits, as OGB's have."""
    lines = [header] if header else []
    for row in np.atleast_2d(np.asarray(rows)):
        lines.append(",".join(f"{v:.6f}" if isinstance(v, float) else str(v) for v in row.tolist()))
    return text("".join(f"{line}\n" for line in lines).encode())


def column(values: Any) -> bytes:
    """A gzipped table of one column."""
    return table(np.asarray(values).reshape(-1, 1))


def arrays(**named: Any) -> bytes:
    """A compressed .npz file."""
    file = io.BytesIO()
    np.savez_compressed(file, **named)
    return file.getvalue()


def edges(num_edges: int, num_src: int, num_dst: int, seed: int) -> np.ndarray[Any, Any]:
    """(num_edges, 2) random ends."""
    random = np.random.default_rng(seed)
    src = random.integers(0, num_src, num_edges)
    return np.stack([src, random.integers(0, num_dst, num_edges)], axis=1)


def features(num_rows: int, num_columns: int, seed: int) -> np.ndarray[Any, Any]:
    """(num_rows, num_columns) numbers of six digits."""
    return np.random.default_rng(seed).normal(size=(num_rows, num_columns)).round(6)


def splits(num_vertices: int) -> dict[str, np.ndarray[Any, Any]]:
    """Vertices of each split; the last one is in none."""
    return {
        "train": np.arange(0, num_vertices - 5),
        "valid": np.array([num_vertices - 4, num_vertices - 5]),
        "test": np.array([num_vertices - 3, num_vertices - 2]),
    }


def _split_files(folder: str, num_vertices: int) -> Files:
    return {f"{folder}/{name}.csv.gz": column(ids) for name, ids in splits(num_vertices).items()}


def _plain(split: str) -> Files:
    stored = edges(20, NUM_VERTICES, NUM_VERTICES, 1)
    return {
        "RELEASE_v1.txt": b"",
        "mapping/README.md": b"",
        "mapping/nodeidx2paperid.csv.gz": table([[0, 7]], "node idx,paper id"),
        "raw/edge.csv.gz": table(stored),
        "raw/num-node-list.csv.gz": column([NUM_VERTICES]),
        "raw/num-edge-list.csv.gz": column([len(stored)]),
        **_split_files(f"split/{split}", NUM_VERTICES),
    }


def arxiv() -> Files:
    """ogbn-arxiv: directed, with the year of each paper."""
    return {
        **_plain("time"),
        "raw/node-feat.csv.gz": table(features(NUM_VERTICES, 4, 2)),
        "raw/node-label.csv.gz": column(np.arange(NUM_VERTICES) % 3),
        "raw/node_year.csv.gz": column(np.full(NUM_VERTICES, 2015)),
    }


def products() -> Files:
    """ogbn-products: each edge is stored once."""
    return {
        **_plain("sales_ranking"),
        "raw/node-feat.csv.gz": table(features(NUM_VERTICES, 5, 3)),
        "raw/node-label.csv.gz": column(np.arange(NUM_VERTICES) % 4),
    }


def proteins() -> Files:
    """ogbn-proteins: features on edges, 112 tasks, the species of each vertex."""
    tasks = np.random.default_rng(5).integers(0, 2, (NUM_VERTICES, 112))
    return {
        **_plain("species"),
        "raw/edge-feat.csv.gz": table(features(20, 8, 4)),
        "raw/node-label.csv.gz": table(tasks),
        "raw/node_species.csv.gz": column(np.full(NUM_VERTICES, 9606)),
    }


def papers(
    dtype: Any = np.float32, *, is_fortran: bool = False, data: Mapping[str, Any] | None = None
) -> Files:
    """ogbn-papers100M: binary arrays, labels of some papers only."""
    stored = edges(20, NUM_VERTICES, NUM_VERTICES, 1).T
    labels = (np.arange(NUM_VERTICES) % 3).astype(np.float32)
    labels[-1] = np.nan
    named = {
        "edge_index": stored if is_fortran else np.ascontiguousarray(stored),
        "node_feat": features(NUM_VERTICES, 4, 2).astype(dtype),
        "node_year": np.full((NUM_VERTICES, 1), 2015),
        "num_nodes_list": np.array([NUM_VERTICES]),
        "num_edges_list": np.array([stored.shape[1]]),
        **(data or {}),
    }
    return {
        "RELEASE_v1.txt": b"",
        "mapping/README.md": b"",
        "raw/data.npz": arrays(**named),
        "raw/node-label.npz": arrays(node_label=labels.reshape(-1, 1)),
        **_split_files("split/time", NUM_VERTICES),
    }


def mag() -> Files:
    """ogbn-mag: four types of vertices, four of edges; features and labels of papers."""
    kinds = "author,field_of_study,institution,paper"
    files = {
        "RELEASE_v2.txt": b"",
        "mapping/README.md": b"",
        "raw/num-node-dict.csv.gz": table(
            [[NUM_AUTHORS, NUM_FIELDS, NUM_INSTITUTIONS, NUM_PAPERS]], kinds
        ),
        # In another order than that of their names, as in the archive.
        "raw/triplet-type-list.csv.gz": table([one[:3] for one in reversed(RELATIONS)]),
        "raw/nodetype-has-label.csv.gz": table([["False", "False", "False", "True"]], kinds),
        "raw/node-feat/paper/node-feat.csv.gz": table(features(NUM_PAPERS, 4, 6)),
        "raw/node-feat/paper/node_year.csv.gz": column(np.full(NUM_PAPERS, 2015)),
        "raw/node-label/paper/node-label.csv.gz": column(np.arange(NUM_PAPERS) % 2),
        "split/time/nodetype-has-split.csv.gz": table([["False", "False", "False", "True"]], kinds),
        **_split_files("split/time/paper", NUM_PAPERS),
    }
    for number, (source, name, destination, num_src, num_dst) in enumerate(RELATIONS):
        folder = f"raw/relations/{source}___{name}___{destination}"
        stored = edges(5 + number, num_src, num_dst, number)
        files[f"{folder}/edge.csv.gz"] = table(stored)
        files[f"{folder}/num-edge-list.csv.gz"] = column([len(stored)])
        files[f"{folder}/edge_reltype.csv.gz"] = column(np.full(len(stored), number))
    return files


BUILDERS = {
    "ogbn-arxiv": arxiv,
    "ogbn-products": products,
    "ogbn-proteins": proteins,
    "ogbn-papers100M": papers,
    "ogbn-mag": mag,
}


def write_zip(path: Path, files: Files, top: str) -> Path:
    """Write an archive with one folder, which has an empty processed/, as OGB's have."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        folders = {f"{top}/", f"{top}/processed/"}
        for name in files:
            parts = name.split("/")[:-1]
            folders |= {f"{'/'.join([top, *parts[:k]])}/" for k in range(len(parts) + 1)}
        for folder in sorted(folders):
            archive.writestr(folder, b"")
        for name, data in files.items():
            archive.writestr(f"{top}/{name}", data)
    return path


def write_folder(folder: Path, files: Files) -> Path:
    """Write the folder that an archive is unpacked to."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def archive_of(folder: Path, name: str, files: Files | None = None) -> Path:
    """Write the archive of a data set, or of other files under its name."""
    files = BUILDERS[name]() if files is None else files
    return write_zip(folder / f"{TOPS[name]}.zip", files, TOPS[name])
