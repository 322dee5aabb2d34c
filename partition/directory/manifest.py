"""The typed content of a partition directory's manifest.json."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from distgnn.datasets.errors import InputError, is_writable
from distgnn.partition.quality import MAX_WIDTH, Estimate, Quality, estimate

FORMAT = "distgnn-partition"
FORMAT_VERSION = 1

_FILE_NAME = re.compile(r"part-[0-9]{4,}/[a-z_]+\.npy")
_REMEDY = "partition the graph again"
_LINKS = ("val_links.npy", "test_links.npy")


@dataclass(frozen=True)
class PartCounts:
    """Sizes of one part."""

    num_roots: int
    num_leaves: int
    num_edges: int
    feature_nnz: int
    """Stored entries of sparse features; 0 when they are dense or absent."""


@dataclass(frozen=True)
class FileRecord:
    """Size and checksum of one file."""

    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Contents of a partition directory, and how it was made."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    name: str
    """Name of the graph."""
    num_parts: int
    num_vertices: int
    num_edges: int
    num_features: int
    has_sparse_features: bool
    num_classes: int
    class_names: tuple[str, ...]
    """Name of each class, or nothing where the source numbers them."""
    is_multilabel: bool
    has_labels: bool
    num_splits: int
    num_train: tuple[int, ...]
    """(num_splits,) training vertices of the whole graph, all with labels."""
    method: str
    options: Mapping[str, Any]
    seed: int
    source: str
    source_checksum: str
    is_regression: bool = False
    """Whether labels are values."""
    metric: str = ""
    """Metric that the data set names, or nothing."""
    order: str = "source"
    """Order of the roots inside a part."""
    num_edge_features: int = 0
    """Columns of the features of edges; 0 without."""
    num_relations: int = 0
    """Types of edges; 0 without."""
    num_vertex_types: int = 0
    """Types of vertices; 0 without."""
    relation_names: tuple[str, ...] = ()
    """Name of each relation, or nothing where the source numbers them."""
    quality: Mapping[str, Any]
    """Result of `Quality.to_json`."""
    parts: tuple[PartCounts, ...]
    files: Mapping[str, FileRecord]
    """Every file, by its path relative to the directory."""

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that another partition, even of the same graph, does not have."""
        sums = "".join(f"{path} {record.sha256}\n" for path, record in sorted(self.files.items()))
        return hashlib.sha256(sums.encode()).hexdigest()[:16]

    @property
    def has_links(self) -> bool:
        """Whether links are held out, to be predicted."""
        return any(path.endswith(_LINKS) for path in self.files)

    @property
    def has_edge_weights(self) -> bool:
        """Whether edges have weights."""
        return any(path.endswith("/edge_weight.npy") for path in self.files)

    @property
    def feature_density(self) -> float:
        """Share of the entries of the features that are stored; 1 if they are dense."""
        if not self.has_sparse_features:
            return 1.0
        num_entries = self.num_vertices * self.num_features
        return sum(part.feature_nnz for part in self.parts) / max(num_entries, 1)

    def to_json(self) -> dict[str, Any]:
        """Turn into plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> Manifest:
        """Check and read parsed JSON.

        Args:
            values: The parsed content of a manifest.json.

        Returns:
            The manifest.

        Raises:
            InputError: If it is no manifest of this format version, lacks a field, or holds a
                value of the wrong kind. The message names the field, the caller adds the file.
        """
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise InputError(f"it is not a {FORMAT} manifest; {_REMEDY}")
        version = values.get("format_version")
        if not _is_kind(version, int):
            raise InputError(f"its 'format_version' is not a number; {_REMEDY}")
        if version != FORMAT_VERSION:
            raise InputError(
                f"it has format_version {version}, but this version of distgnn reads "
                f"{FORMAT_VERSION}; {_REMEDY}"
            )
        for field in fields(cls):
            if field.name not in values:
                raise InputError(f"it lacks {field.name!r}; {_REMEDY}")
            if not _is_kind(values[field.name], _KINDS[str(field.type)]):
                raise InputError(f"its {field.name!r} is not of type {field.type}; {_REMEDY}")
            if field.name.startswith("num_") and isinstance(values[field.name], int):
                _integers(field.name, [values[field.name]])
        known = {field.name: values[field.name] for field in fields(cls)}
        for names, count in (("class_names", "num_classes"), ("relation_names", "num_relations")):
            known[names] = _names(names, values[names], values[count])
        known["num_train"] = _integers("num_train", values["num_train"])
        known["options"] = _options(values["options"])
        known["parts"] = _part_counts(values["parts"], values["num_parts"])
        known["quality"] = _quality(values["quality"], known["parts"])
        known["files"] = _file_records(values["files"])
        _check_links(known["files"], values["num_parts"])
        _check_totals(known)
        return cls(**known)

    def estimate(self, layer_widths: Sequence[int]) -> Estimate:
        """Estimate bytes per epoch and memory per rank; see `quality.estimate`.

        Args:
            layer_widths: (num_layers,) width of the rows that each aggregation takes.

        Returns:
            The estimate, with this partition's features.

        Raises:
            InputError: If a width is not in 1..MAX_WIDTH of `quality`.
        """
        nnz = [part.feature_nnz for part in self.parts] if self.has_sparse_features else None
        return estimate(
            Quality.from_json(self.quality),
            layer_widths,
            num_features=self.num_features,
            feature_nnz=nnz,
        )


_KINDS: dict[str, type] = {
    "str": str,
    "int": int,
    "bool": bool,
    "tuple[int, ...]": list,
    "tuple[str, ...]": list,
    "tuple[PartCounts, ...]": list,
    "Mapping[str, Any]": dict,
    "Mapping[str, FileRecord]": dict,
}


def _is_kind(value: Any, kind: type) -> bool:
    # bool is a subclass of int, but true is no count.
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _integers(name: str, values: Sequence[Any]) -> tuple[int, ...]:
    if not all(_is_kind(value, int) and 0 <= value < 1 << 63 for value in values):
        raise InputError(f"its {name!r} holds something that is no count; {_REMEDY}")
    return tuple(values)


def _names(field: str, values: Sequence[Any], count: int) -> tuple[str, ...]:
    if not all(isinstance(name, str) and is_writable(name) for name in values) or len(
        values
    ) not in (0, count):
        raise InputError(f"its {field!r} are not {count} names; {_REMEDY}")
    return tuple(values)


def _part_counts(values: Sequence[Any], num_parts: int) -> tuple[PartCounts, ...]:
    names = [field.name for field in fields(PartCounts)]
    if len(values) != num_parts or not all(
        isinstance(value, dict) and set(value) == set(names) for value in values
    ):
        raise InputError(
            f"its 'parts' does not give {', '.join(names)} of {num_parts} parts; {_REMEDY}"
        )
    return tuple(
        PartCounts(*_integers("parts", [value[name] for name in names])) for value in values
    )


def _options(values: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in values.items():
        if not isinstance(value, str | int | float | None):
            raise InputError(f"its option {name!r} is neither a number nor text; {_REMEDY}")
    return dict(values)


def _quality(values: Mapping[str, Any], parts: Sequence[PartCounts]) -> dict[str, Any]:
    quality = Quality.from_json(values)
    for name in ("num_roots", "num_leaves", "num_edges"):
        if getattr(quality, name).tolist() != [getattr(part, name) for part in parts]:
            raise InputError(f"its 'quality' and its 'parts' differ in {name!r}; {_REMEDY}")
    return quality.to_json()


def _check_totals(known: Mapping[str, Any]) -> None:
    for name in (
        "num_features",
        "num_edge_features",
        "num_classes",
        "num_relations",
        "num_vertex_types",
    ):
        if known[name] > MAX_WIDTH:
            raise InputError(
                f"its {name!r} is {known[name]}, but at most {MAX_WIDTH} are possible; {_REMEDY}"
            )
    for name, total in (
        ("num_vertices", sum(part.num_roots for part in known["parts"])),
        ("num_edges", sum(part.num_edges for part in known["parts"])),
        ("num_splits", len(known["num_train"])),
    ):
        if known[name] != total:
            raise InputError(
                f"its {name!r} is {known[name]}, but what it lists adds up to {total}; {_REMEDY}"
            )


def _file_records(values: Mapping[str, Any]) -> dict[str, FileRecord]:
    for path, record in values.items():
        if _FILE_NAME.fullmatch(path) is None:
            raise InputError(
                f"it names the file {path!r}, which is not of the form part-0000/name.npy; "
                f"{_REMEDY}"
            )
        if (
            not isinstance(record, dict)
            or not _is_kind(record.get("bytes"), int)
            or not isinstance(record.get("sha256"), str)
        ):
            raise InputError(f"it lacks the size or the checksum of {path!r}; {_REMEDY}")
    return {path: FileRecord(record["bytes"], record["sha256"]) for path, record in values.items()}


def _check_links(files: Mapping[str, FileRecord], num_parts: int) -> None:
    """Check that links of both splits are held out by every part or by none."""
    wanted = [f"part-{part:04d}/{name}" for part in range(num_parts) for name in _LINKS]
    missing = [path for path in wanted if path not in files]
    if missing and any(path.endswith(_LINKS) for path in files):
        raise InputError(f"it lists links that are held out, but not {missing[0]!r}; {_REMEDY}")
