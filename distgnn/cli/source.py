"""What a SOURCE argument may be, and how a rank loads it."""

from __future__ import annotations

import argparse
import csv
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.cli.flags import path
from distgnn.cli.output import note
from distgnn.datasets.columns import FLAGS as COLUMN_FLAGS
from distgnn.datasets.columns import Columns
from distgnn.datasets.errors import InputError
from distgnn.datasets.ogb import located
from distgnn.partition.directory.layout import part_folder
from distgnn.partition.directory.store import MANIFEST_NAME, read_manifest, read_part, whole_part

if TYPE_CHECKING:
    from distgnn.comm.group import Group
    from distgnn.datasets.graph import Graph
    from distgnn.partition.directory.store import Manifest, Part
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.info import DataInfo


def add_source_arguments(parser: argparse.ArgumentParser, *, or_parts: bool) -> None:
    """Add what tells where a graph comes from.

    Args:
        parser: Of the verb.
        or_parts: Whether the verb takes a partition directory too.
    """
    what = (
        "a data set's name (see distgnn datasets), a graph file (.npz, .csv, .tsv, .parquet, .mtx, "
        ".nt), a folder with edges.csv and vertices.csv or with edge_index.npy, or a file or "
        "folder as OGB, Planetoid, DGL and others publish it"
    )
    parser.add_argument(
        "source",
        type=path,
        metavar="SOURCE",
        help=f"{what}; or a partition directory" if or_parts else what,
    )
    parser.add_argument(
        "--root",
        type=path,
        metavar="DIR",
        help="where data sets lie that are named, such as reddit or ogbn-arxiv, unless a file or "
        "folder here has that name (default: DISTGNN_DATASETS or ./dataset)",
    )
    parser.add_argument(
        "--vertices", type=path, metavar="FILE", help="table of vertices beside an edge list"
    )
    _add_column_arguments(parser)
    parser.add_argument(
        "--undirected", action="store_true", help="add the reverse of each edge that lacks it"
    )
    parser.add_argument(
        "--inverse-relations",
        action="store_true",
        help="of a typed graph: add each edge reversed, under a relation of its own",
    )
    parser.add_argument(
        "--one-hot",
        action="store_true",
        help="give each vertex without features a feature of its own, which no other has",
    )
    parser.add_argument(
        "--split", metavar="A/B/C", help="train/validation/test fractions, such as 0.6/0.2/0.2"
    )
    parser.add_argument(
        "--edge-split",
        metavar="A/B/C",
        help="to predict links: train/validation/test shares of the pairs of vertices that edges "
        "join, such as 0.9/0.05/0.05; edges of the last two are held out",
    )


def _add_column_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name columns of tables."""
    help_of = {
        "source": "column of an edge list: where edges begin (default: src, source, from, u, ...)",
        "target": "column of an edge list: where edges end (default: dst, target, to, v, ...)",
        "weight": "column of an edge list: weights (default: weight, edge_weight, w)",
        "edge_features": "columns of an edge list: features of edges (default: all other numbers)",
        "id": "column of the vertex table: ids (default: id)",
        "label": "column of the vertex table: labels (default: label, or several label_NAME)",
        "features": "columns of the vertex table: features (default: all other numbers)",
    }
    for field, text in help_of.items():
        is_several = COLUMN_FLAGS[field].endswith("s")
        parser.add_argument(
            COLUMN_FLAGS[field],
            type=_names if is_several else str,
            metavar="A,B,..." if is_several else "NAME",
            help=text,
        )


def _names(text: str) -> tuple[str, ...]:
    """Convert names between commas; a name with a comma stands between double quotes."""
    names = tuple(next(csv.reader([text]), ()))
    if not all(names):
        raise argparse.ArgumentTypeError(f"must be names between commas, got '{text}'")
    return names


def _columns(arguments: argparse.Namespace) -> Columns:
    found = {
        field: getattr(arguments, flag.removeprefix("--").replace("-", "_"))
        for field, flag in COLUMN_FLAGS.items()
    }
    return Columns(**found)


def load_graph(values: dict[str, Any]) -> Graph:
    """Load a graph as the arguments say.

    Args:
        values: From `source_values`.

    Returns:
        The graph.
    """
    from distgnn.datasets import load

    return load(
        values["source"],
        vertices=values["vertices"],
        undirected=values["undirected"],
        inverse_relations=values["inverse_relations"],
        one_hot=values["one_hot"],
        split=values["split"],
        edge_split=values["edge_split"],
        seed=values["seed"],
        columns=Columns.from_json(values.get("columns", {})),
        progress=note,
    )


def located_source(arguments: argparse.Namespace) -> str:
    """Return the source; instead of the name of a data set, the path where it lies.

    A data set of OGB is first made an array folder, which is then its path.

    Args:
        arguments: With the flags of `add_source_arguments`; they keep the outcome.

    Returns:
        A name or a path.

    Raises:
        InputError: If a data set that is named is not there, or one of OGB is damaged; or if the
            source is none that is looked up below the root that was given.
    """
    from distgnn.datasets import find

    if arguments.root is not None:
        _check_root(arguments.source, arguments.root)
    found = find(arguments.source, arguments.root)
    is_reversed = arguments.undirected or arguments.inverse_relations
    found = str(located(found, arguments.root, is_reversed=is_reversed, progress=note))
    arguments.source, arguments.root = found, None
    return found


def _check_root(source: str, root: str) -> None:
    """Check that a root has an effect: on a name that stands for nothing here."""
    from distgnn.datasets import names

    below = Path(root) / source
    is_below = source == Path(source).name and below.exists()
    if source.startswith("synthetic:") or source in names():
        why = "comes with distgnn"
    elif Path(source).exists() and not (is_below and below.samefile(source)):
        why = "is a file or folder here"
    else:
        return
    raise InputError(
        f"--root {root} is where data sets lie that are named, but '{source}' {why}; leave --root "
        "out"
    )


def source_values(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what a run must remember to open its source again; paths become absolute."""
    source = located_source(arguments)
    if is_path(source):
        source = str(Path(source).resolve())
    vertices = arguments.vertices and str(Path(arguments.vertices).resolve())
    return {
        "source": source,
        "vertices": vertices,
        "columns": _columns(arguments).to_json(),
        "undirected": arguments.undirected,
        "inverse_relations": arguments.inverse_relations,
        "one_hot": arguments.one_hot,
        "split": arguments.split,
        "edge_split": arguments.edge_split,
        "seed": arguments.seed,
    }


def check_source_values(values: dict[str, Any], run_dir: str) -> None:
    """Check what a run remembers of its source, which somebody may have edited.

    Args:
        values: As read back.
        run_dir: The run, for the message.

    Raises:
        InputError: If a value is missing, unknown, or of another type.
    """
    kinds = {
        "source": (str,),
        "vertices": (str, type(None)),
        "columns": (dict,),
        "undirected": (bool,),
        "inverse_relations": (bool,),
        "one_hot": (bool,),
        "split": (str, type(None)),
        "edge_split": (str, type(None)),
        "seed": (int,),
    }
    values = {"columns": {}, **values}
    is_sound = set(values) == set(kinds) and all(
        isinstance(values[name], kind) for name, kind in kinds.items()
    )
    try:
        Columns.from_json(values["columns"] if is_sound else {})
    except ValueError:
        is_sound = False
    if not is_sound:
        raise InputError(
            f"run '{run_dir}' remembers its source as {values}, but it takes {', '.join(kinds)} as "
            "distgnn train writes them; restore its config.json or train again"
        )


def is_path(source: str) -> bool:
    """Tell whether a SOURCE is a file or a folder: a bundled or synthetic graph's name wins."""
    from distgnn.datasets import names

    is_synthetic = source.startswith("synthetic:")
    return not is_synthetic and source not in names() and Path(source).exists()


@dataclass(frozen=True)
class Source:
    """An opened SOURCE.

    Attributes:
        values: From `source_values`.
        manifest: Of a partition directory; None for anything else.
        graph: Of anything else.
    """

    values: dict[str, Any]
    manifest: Manifest | None
    graph: Graph | None

    @property
    def num_parts(self) -> int:
        """Ranks that a run on this source has."""
        return 1 if self.manifest is None else self.manifest.num_parts

    @property
    def num_splits(self) -> int:
        """Rows of the masks; at least 1, so that a run without any says what is missing."""
        about = self.graph if self.manifest is None else self.manifest
        assert about is not None, "a source is a directory or a graph"
        return max(about.num_splits, 1)

    @property
    def ends(self) -> DataInfo:
        """Widths of the model's ends."""
        from distgnn.training.data.info import DataInfo

        about = self.graph if self.manifest is None else self.manifest
        assert about is not None, "a source is a directory or a graph"
        return DataInfo.of(about)

    def to_json(self) -> dict[str, Any]:
        """Return what a run remembers, so that it goes on with the same graph only."""
        partition = ""
        if self.manifest is None:
            checksum = "" if self.graph is None else self.graph.checksum
        else:
            checksum = self.manifest.source_checksum
            # Delayed rows lie in a checkpoint in the order of one partition.
            partition = self.manifest.fingerprint
        ends = {**asdict(self.ends), "class_names": list(self.ends.class_names)}
        for name in ("metric", "task", "has_links"):  # the run has what is asked of them
            del ends[name]
        return {"source": self.values, "task": ends, "checksum": checksum, "partition": partition}

    def feature_bytes(self, rank: int, config: TrainConfig) -> int:
        """Return what a part's features will take, with labels; 0 of a graph that is there."""
        from distgnn.training.data.inputs import dense_input_bytes

        if self.manifest is None:
            return 0
        prefix = f"{part_folder(rank)}/features"
        stored_bytes = sum(
            record.bytes for name, record in self.manifest.files.items() if name.startswith(prefix)
        )
        if self.manifest.has_sparse_features:
            return stored_bytes
        num_bytes = dense_input_bytes(
            stored_bytes, norm=config.feature_norm, dtype=config.features_dtype
        )
        if not config.labels_as_input:
            return num_bytes
        num_labels = self.manifest.parts[rank].num_roots * self.manifest.num_classes
        # Training and evaluation read rows of their own.
        return 2 * (num_bytes + num_labels * config.feature_bytes)

    def part(self, rank: int) -> Part:
        """Load the part of a rank."""
        if self.graph is None:
            return read_part(self.values["source"], rank)
        return whole_part(self.graph)


def open_source(values: dict[str, Any]) -> Source:
    """Open a SOURCE.

    Args:
        values: From `source_values`.

    Returns:
        The source.

    Raises:
        InputError: If it cannot be read, or options are given that a partition directory ignores.
    """
    # A damaged manifest is still one: its reader says what is wrong with it.
    source = values["source"]
    if not (is_path(source) and (Path(source) / MANIFEST_NAME).is_file()):
        return Source(values, None, load_graph(values))
    names = ("vertices", "undirected", "inverse_relations", "one_hot", "split", "edge_split")
    flags = [f"--{name.replace('_', '-')}" for name in names if values.get(name)]
    flags += [COLUMN_FLAGS[name] for name in values.get("columns", ())]
    if flags:
        raise InputError(
            f"{flags[0]} has no effect on partition directory '{source}'; give it to "
            "distgnn partition"
        )
    return Source(values, read_manifest(source), None)


def check_ranks(source: Source, group: Group, command: str) -> None:
    """Check that there is a rank for each part.

    Args:
        source: What the ranks are to work on.
        group: All ranks.
        command: What was started, for the message.

    Raises:
        InputError: If not; says how to launch.
    """
    if source.num_parts == group.size:
        return
    name = source.values["source"]
    if source.manifest is None:
        raise InputError(
            f"{group.size} ranks were started on '{name}', which is not cut into parts; run it "
            f"without mpirun, or distgnn partition {name} --parts {group.size} --out DIR and train "
            "on DIR"
        )
    started = "1 rank was started" if group.size == 1 else f"{group.size} ranks were started"
    raise InputError(
        f"partition directory '{name}' was made for {source.num_parts} parts, but {started}; "
        f"run mpirun -n {source.num_parts} {command}"
    )
