"""A small sound file or folder of every kind that distgnn reads."""

from __future__ import annotations

import gzip
import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.io
import scipy.sparse

from distgnn.datasets import Graph
from distgnn.datasets.npz import arrays_of, write_npz

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUM = 8


def graph() -> Graph:
    """Return a graph with everything that a file may hold."""
    draw = np.random.default_rng(0)
    src, dst = draw.integers(0, NUM, (2, 20))
    third = np.arange(NUM) % 3
    return Graph(
        name="g",
        num_vertices=NUM,
        src=src,
        dst=dst,
        features=draw.random((NUM, 3), dtype=np.float32),
        labels=third,
        train_mask=third == 0,
        val_mask=third == 1,
        test_mask=third == 2,
        edge_weight=draw.random(20, dtype=np.float32),
        edge_features=draw.random((20, 2), dtype=np.float32),
        edge_type=draw.integers(0, 2, 20),
        relation_names=("r", "s"),
        vertex_type=third,
        vertex_id=np.array([f"v{v}" for v in range(NUM)]),
        class_names=("a", "b", "c"),
        val_links=np.array([[0, 1]]),
        test_links=np.array([[2, 3]]),
    )


def _npz(folder: Path) -> Path:
    write_npz(graph(), folder / "g.npz")
    return folder / "g.npz"


def _sparse_npz(folder: Path) -> Path:
    values = {**arrays_of(graph())}
    csr = scipy.sparse.csr_matrix(values.pop("features"))
    values |= {"features_indptr": csr.indptr, "features_indices": csr.indices}
    values |= {"features_data": csr.data, "features_shape": np.array(csr.shape)}
    np.savez(folder / "s.npz", **values)
    return folder / "s.npz"


def _matrix() -> Any:
    one = graph()
    return scipy.sparse.coo_matrix((one.edge_weight, (one.src, one.dst)), shape=(NUM, NUM))


def _scipy_npz(folder: Path) -> Path:
    scipy.sparse.save_npz(folder / "m.npz", _matrix().tocsr())
    return folder / "m.npz"


def _heterophilous(folder: Path) -> Path:
    masks = np.stack([np.arange(NUM) % 3 == k for k in range(3)])
    np.savez(
        folder / "h.npz",
        node_features=np.ones((NUM, 2), np.float32),
        node_labels=np.arange(NUM) % 2,
        edges=np.array([[0, 1], [1, 2], [3, 4]]),
        train_masks=masks[:1],
        val_masks=masks[1:2],
        test_masks=masks[2:],
    )
    return folder / "h.npz"


def _gnn_benchmark(folder: Path) -> Path:
    values: dict[str, Any] = {"labels": np.arange(NUM) % 2, "class_names": np.array(["a", "b"])}
    for kind, matrix in (("adj", _matrix().tocsr()), ("attr", scipy.sparse.eye(NUM).tocsr())):
        values |= {
            f"{kind}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")
        }
        values[f"{kind}_shape"] = np.array(matrix.shape)
    np.savez(folder / "b.npz", **values)
    return folder / "b.npz"


def _pickled_benchmark(folder: Path) -> Path:
    values = {"adj_matrix": _matrix().tocsr(), "attr_matrix": scipy.sparse.eye(NUM).tocsr()}
    held = {name: np.array(value, dtype=object) for name, value in values.items()}
    np.savez(folder / "p.npz", labels=np.arange(NUM) % 2, **held)
    return folder / "p.npz"


def _planetoid(folder: Path) -> Path:
    eye = scipy.sparse.eye(NUM).tocsr().astype(np.float32)
    hot = np.eye(2, dtype=np.int32)[np.arange(NUM) % 2]
    values = {"x": eye[:2], "y": hot[:2], "tx": eye[6:], "ty": hot[6:], "allx": eye[:6]}
    values |= {"ally": hot[:6], "graph": {v: [(v + 1) % NUM] for v in range(NUM)}}
    for name, value in values.items():
        (folder / f"ind.g.{name}").write_bytes(pickle.dumps(value, protocol=2))
    (folder / "ind.g.test.index").write_text("7\n6\n")
    return folder


def _reddit(folder: Path) -> Path:
    scipy.sparse.save_npz(folder / "reddit_graph.npz", _matrix())
    np.savez(
        folder / "reddit_data.npz",
        feature=np.ones((NUM, 2), np.float32),
        label=np.arange(NUM) % 2,
        node_types=np.arange(NUM) % 3 + 1,
    )
    return folder


def _matrix_market(folder: Path) -> Path:
    scipy.io.mmwrite(folder / "m.mtx", _matrix())
    return folder / "m.mtx"


def _csv(folder: Path) -> Path:
    one = graph()
    rows = zip(one.src, one.dst, one.edge_weight, strict=True)
    lines = ["src,dst,weight,kind", *(f"{s},{d},{w:.3f},{i}" for i, (s, d, w) in enumerate(rows))]
    (folder / "edges.csv").write_text("\n".join(lines))
    heads = ["id,label,split,f0,note"]
    splits = ("train", "val", "test")
    heads += [f"{v},{v % 3},{splits[v % 3]},{v / 7:.4f},n" for v in range(NUM)]
    (folder / "vertices.csv").write_text("\n".join(heads))
    return folder


def _words(folder: Path) -> Path:
    lines = [f'"v {s}"\tv{d}' for s, d in zip(graph().src, graph().dst, strict=True)]
    (folder / "words.tsv").write_text("\n".join(lines))
    return folder / "words.tsv"


def _packed_csv(folder: Path) -> Path:
    (folder / "edges.csv.gz").write_bytes(gzip.compress((_csv(folder) / "edges.csv").read_bytes()))
    return folder / "edges.csv.gz"


def _parquet(folder: Path) -> Path:
    import pyarrow as arrow
    from pyarrow import parquet

    one = graph()
    columns = {"src": one.src, "dst": one.dst, "weight": one.edge_weight}
    parquet.write_table(arrow.table(columns), folder / "edges.parquet")
    rows = {"id": list(range(NUM)), "label": ["a", None] * 4, "f": [0.5, 1.5] * 4}
    parquet.write_table(arrow.table(rows), folder / "vertices.parquet")
    return folder


def _arrays(folder: Path) -> Path:
    for name, array in arrays_of(graph()).items():
        np.save(folder / f"{name}.npy", array)
    return folder


def _rdf(folder: Path) -> Path:
    lines = [
        f"<a:{s}> <p:{s % 2}> <a:{d}> ." for s, d in zip(graph().src, graph().dst, strict=True)
    ]
    (folder / "aifb_stripped.nt").write_text("\n".join(lines))
    for name in ("trainingSet", "testSet"):
        rows = [f"a:{v}\tx\t{v % 2}" for v in range(NUM) if (v < 4) == (name == "trainingSet")]
        (folder / f"{name}.tsv").write_text("\n".join(["person\tid\tlabel_affiliation", *rows]))
    return folder / "aifb_stripped.nt"


CORPUS: dict[str, Callable[[Path], Path]] = {
    "npz": _npz,
    "sparse-npz": _sparse_npz,
    "scipy-npz": _scipy_npz,
    "heterophilous": _heterophilous,
    "gnn-benchmark": _gnn_benchmark,
    "pickled-benchmark": _pickled_benchmark,
    "planetoid": _planetoid,
    "reddit": _reddit,
    "matrix-market": _matrix_market,
    "csv": _csv,
    "tsv": _words,
    "csv-gz": _packed_csv,
    "parquet": _parquet,
    "arrays": _arrays,
    "rdf": _rdf,
}
"""Writers by the name of the kind; each returns the path to load."""


def recipe(folder: Path) -> Path:
    """Write a recipe."""
    values = {"about": "x", "data": ["cora"], "flags": {"model": "gcn", "hidden": 4, "lr": 0.01}}
    path = folder / "recipe.json"
    path.write_text(json.dumps({**values, "published": {"mean": 80.0}, "runs": {"seeds": 2}}))
    return path
