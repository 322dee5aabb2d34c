"""Sources of graphs: what a SOURCE may be, and how a rank loads its part of it."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.api.columns import columns_of
from distgnn.datasets.columns import FLAGS as COLUMN_FLAGS
from distgnn.datasets.columns import NO_COLUMNS, Columns
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import IN_MEMORY
from distgnn.datasets.ogb import located
from distgnn.partition.directory.layout import part_folder
from distgnn.partition.directory.store import MANIFEST_NAME, read_manifest, read_part, whole_part

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.api.settings import Keywords
    from distgnn.comm.group import Group
    from distgnn.datasets.graph import Graph
    from distgnn.partition.directory.store import Manifest, Part
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.info import DataInfo

# What is done to a graph once it is loaded; a partition directory keeps what was done to its own.
SWITCHES = ("deduplicate", "drop_self_loops", "undirected", "inverse_relations", "one_hot")
"""Changes of a graph that are switches of the command line."""
_CHANGES = ("vertices", *SWITCHES, "split", "edge_split")


@dataclass(frozen=True)
class SourceOptions:
    """A SOURCE and how it is loaded.

    Attributes:
        source: Name of a data set, a path, or `IN_MEMORY`.
        root: Folder of data sets that are named; None for `DISTGNN_DATASETS` or ./dataset.
        vertices: Table of vertices beside an edge list.
        deduplicate: Whether to keep one of several edges with the same ends and type.
        drop_self_loops: Whether to leave out edges from a vertex to itself.
        undirected: Whether to add the reverse of each edge that lacks it.
        inverse_relations: Whether to add each edge of a typed graph reversed.
        one_hot: Whether to give each vertex without features a feature of its own.
        split: Shares of train, validation and test, such as "0.6/0.2/0.2".
        edge_split: Shares of the links to predict.
        seed: Seed of both splits.
        columns: Choices about columns of tables, where the known names do not apply.
        graph: Graph in memory; None for any other source.
    """

    source: str
    root: str | None = None
    vertices: str | None = None
    deduplicate: bool = False
    drop_self_loops: bool = False
    undirected: bool = False
    inverse_relations: bool = False
    one_hot: bool = False
    split: str | None = None
    edge_split: str | None = None
    seed: int = 0
    columns: Columns = NO_COLUMNS
    graph: Graph | None = None

    def located(self, say: Callable[[str], None]) -> SourceOptions:
        """Replace the name of a data set by the path where it lies.

        A data set of OGB is first made an array folder, which is then its path.

        Args:
            say: Receives notes about the work under way.

        Returns:
            Options without a root.

        Raises:
            InputError: If a named data set is not there, one of OGB is damaged, or a root is given
                for a source that is not looked up below it.
        """
        from distgnn.datasets import find

        if self.graph is not None:
            return self
        if self.root is not None:
            _check_root(self.source, self.root)
        found = find(self.source, self.root)
        is_reversed = self.undirected or self.inverse_relations
        path = located(found, self.root, is_reversed=is_reversed, progress=say)
        return replace(self, source=str(path), root=None)

    def words(self) -> list[str]:
        """Return the source as words of a command line, apart from the seed of its splits.

        Raises:
            InputError: If it is a graph in memory.
        """
        if self.graph is not None:
            raise InputError(
                "a graph in memory cannot be given to other processes; save it as a file, or leave "
                "jobs out"
            )
        words = [self.source]
        for name in ("root", "vertices", "split", "edge_split"):
            value = getattr(self, name)
            words += [] if value is None else [f"--{name.replace('_', '-')}={value}"]
        for name in SWITCHES:
            words += [f"--{name.replace('_', '-')}"] * getattr(self, name)
        return [*words, *self.columns.words()]

    def to_json(self) -> dict[str, Any]:
        """Return what a run remembers in order to open its source again; paths are absolute."""
        source = self.source
        if self.graph is None and is_path(source):
            source = str(Path(source).resolve())
        return {
            "source": source,
            "vertices": self.vertices and str(Path(self.vertices).resolve()),
            "columns": self.columns.to_json(),
            **{name: getattr(self, name) for name in SWITCHES},
            "split": self.split,
            "edge_split": self.edge_split,
            "seed": self.seed,
        }

    def open(self, say: Callable[[str], None]) -> Source:
        """Open the source.

        Args:
            say: Receives notes about the work under way.

        Returns:
            The source.

        Raises:
            InputError: If it cannot be read, or options are given that a partition directory
                ignores.
        """
        return open_source(self.located(say).to_json(), say, self.graph)


def options_of(words: Keywords, source: Any) -> SourceOptions:
    """Return the source that keywords describe.

    Args:
        words: Keywords of a verb.
        source: Name, path, or graph in memory of any known library.

    Raises:
        InputError: If the source is nothing of these, or a value is of another type.
    """
    graph = None
    if not isinstance(source, str | os.PathLike):
        from distgnn.api.graphs import from_memory

        graph = from_memory(source)
    options = words.fields_of(SourceOptions, but=("source", "graph", "columns"))
    text = IN_MEMORY if graph is not None else os.fspath(source)
    return SourceOptions(text, graph=graph, columns=columns_of(words), **options)


def load_graph(
    values: dict[str, Any], say: Callable[[str], None], graph: Graph | None = None
) -> Graph:
    """Load a graph.

    Args:
        values: Record of the source, from `SourceOptions.to_json`.
        say: Receives a line for each table that is read.
        graph: Graph in memory, to which the options are applied; None to load the source.

    Returns:
        The graph.

    Raises:
        InputError: If the source cannot be read, or was a graph in memory that is not given.
    """
    from distgnn.datasets import load
    from distgnn.datasets.sources import changed

    options = {
        **{name: values[name] for name in SWITCHES},
        "split": values["split"],
        "edge_split": values["edge_split"],
        "seed": values["seed"],
    }
    columns = Columns.from_json(values["columns"])
    if graph is not None:
        if values["vertices"] is not None or columns.given:
            raise InputError(
                "vertices and columns are about tables, and have no effect on a graph in memory; "
                "leave them out"
            )
        return changed(graph, **options, label_values=bool(columns.label_values))
    if values["source"] == IN_MEMORY:
        raise InputError(
            "it was a graph in memory; give the graph again, as source= of the function in Python"
        )
    return load(
        values["source"], vertices=values["vertices"], columns=columns, progress=say, **options
    )


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


def check_source_values(values: dict[str, Any], run_dir: str) -> None:
    """Check the record that a run keeps of its source, which somebody may have edited.

    Args:
        values: Record, as it was read.
        run_dir: Directory of the run, for the message.

    Raises:
        InputError: If a value is missing, unknown, or of another type.
    """
    kinds = {
        "source": (str,),
        "vertices": (str, type(None)),
        "columns": (dict,),
        **dict.fromkeys(SWITCHES, (bool,)),
        "split": (str, type(None)),
        "edge_split": (str, type(None)),
        "seed": (int,),
    }
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
    """Return whether a SOURCE is a file or a folder: a bundled or synthetic graph's name wins."""
    from distgnn.datasets import names

    is_synthetic = source.startswith("synthetic:")
    return not is_synthetic and source not in names() and Path(source).exists()


def num_parts_of(source: str) -> int:
    """Return how many ranks train on a SOURCE: the parts of a directory, else one.

    Args:
        source: Name of a data set or a path.

    Raises:
        InputError: If it is a partition directory with a damaged manifest.
    """
    is_directory = is_path(source) and (Path(source) / MANIFEST_NAME).is_file()
    return read_manifest(source).num_parts if is_directory else 1


@dataclass(frozen=True)
class Source:
    """An opened SOURCE.

    Attributes:
        values: Record of the source, from `SourceOptions.to_json`.
        manifest: Manifest of a partition directory; None for anything else.
        graph: Graph of anything else.
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
        """Return the record by which a run continues with the same graph only."""
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
        """Return the bytes that features and labels of a part take; 0 for a graph in memory."""
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


def open_source(
    values: dict[str, Any], say: Callable[[str], None], graph: Graph | None = None
) -> Source:
    """Open a source that a run remembers.

    Args:
        values: Record of the source, from `SourceOptions.to_json`.
        say: Receives notes about the work under way.
        graph: Graph in memory, if the source was one.

    Returns:
        The source.

    Raises:
        InputError: If it cannot be read, or options are given that a partition directory ignores.
    """
    # A damaged manifest is still one: its reader says what is wrong with it.
    source = values["source"]
    is_directory = is_path(source) and (Path(source) / MANIFEST_NAME).is_file()
    if graph is not None or not is_directory:
        return Source(values, None, load_graph(values, say, graph))
    flags = [f"--{name.replace('_', '-')}" for name in _CHANGES if values[name]]
    flags += [COLUMN_FLAGS[name] for name in Columns.from_json(values["columns"]).given]
    if flags:
        raise InputError(
            f"{flags[0]} has no effect on partition directory '{source}'; give it to "
            "distgnn partition"
        )
    return Source(values, read_manifest(source), None)


def check_ranks(source: Source, group: Group, command: str) -> None:
    """Check that there is a rank for each part.

    Args:
        source: Source of the run.
        group: All ranks.
        command: Command that was started, for the message.

    Raises:
        InputError: If not; says how to launch.
    """
    if source.num_parts == group.size:
        return
    name = source.values["source"]
    if source.manifest is None and name == IN_MEMORY:
        raise InputError(
            f"{group.size} ranks were started on a graph in memory, which is not cut into parts; "
            f"run one process, or call partition_graph with {group.size} parts and use its "
            "directory"
        )
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
