"""Entity classification on RDF: AIFB, MUTAG, BGS and AM as R-GCN takes them.

References:
    Schlichtkrull, Kipf, Bloem, van den Berg, Titov, Welling, "Modeling Relational Data with Graph
    Convolutional Networks", ESWC 2018. Ristoski, de Vries, Paulheim, "A Collection of Benchmark
    Datasets for Systematic Evaluations of Machine Learning on the Semantic Web", ISWC 2016.
"""

from __future__ import annotations

import csv
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.datasets.npz import sha256
from distgnn.datasets.ntriples import Triples, read_ntriples, text_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LOGGER = logging.getLogger(__name__)

RDF_SUFFIXES = (".nt", ".nt.gz")
"""Suffixes of N-Triples files."""
# Training and test set; those of BGS say which of its properties they are about.
_TABLES = (
    ("trainingSet.tsv", "testSet.tsv"),
    ("trainingSet(lith).tsv", "testSet(lith).tsv"),
)
# Relations that say the label of an entity, or are its inverse: R-GCN's authors leave them out.
_TARGETS = frozenset(
    {
        b"<http://swrc.ontoware.org/ontology#affiliation>",
        b"<http://swrc.ontoware.org/ontology#employs>",
        b"<http://dl-learner.org/carcinogenesis#isMutagenic>",
        b"<http://data.bgs.ac.uk/ref/Lexicon/hasLithogenesis>",
        b"<http://purl.org/collections/nl/am/objectCategory>",
        b"<http://purl.org/collections/nl/am/material>",
    }
)
_ENTITY_COLUMNS = ("person", "bond", "rock", "proxy")
_LABEL_PREFIX = "label_"


def is_rdf(path: Path) -> bool:
    """Return whether a folder has N-Triples and a training set, or a file is N-Triples."""
    if path.is_dir():
        return (path / _tables_of(path)[0]).is_file() and any(_files_of(path))
    return path.name.endswith(RDF_SUFFIXES)


def read_rdf(path: str | Path) -> Graph:
    """Read an RDF graph, with labels from the training and the test set beside it, if any.

    Every distinct subject and object is a vertex: URIs, blank nodes and literals (one for each
    value with its language or datatype), as R-GCN's authors count them. A statement is an edge from
    subject to object, whose type is its predicate; predicates are numbered by falling frequency.
    Statements of the relations that give the labels away are left out. `vertex_type` is 0 for URIs,
    1 for blank nodes and 2 for literals. The ids are the texts of the vertices. None are kept where
    a literal is very long, or repeats another when escapes are resolved.

    Args:
        path: The folder, or its .nt or .nt.gz file. Of several, the `_stripped` one is taken. The
            tables are `trainingSet.tsv` and `testSet.tsv`, or those of BGS with (lith) in the name.

    Raises:
        InputError: If a file is damaged, or the labels name no vertex.
    """
    file, *tables = rdf_files(Path(path))
    if not file.is_file():
        raise InputError(f"there is no file {file}; check the path")
    files = [file, *(item for item in tables if item.is_file())]
    if len(files) == 2:
        both = " and ".join(table.name for table in tables)
        raise InputError(f"{files[1]} has no partner; put {both} beside {file.name}")
    triples = _without_targets(read_ntriples(file), file)
    used, ends = np.unique(np.stack([triples.subject, triples.object]), return_inverse=True)
    src, dst = ends.reshape(2, -1)
    terms = [triples.terms[number] for number in used.tolist()]
    edge_type, relation_names = _relations(triples)
    labels = _labels(terms, files[1:]) if len(files) == 3 else {}
    try:
        return Graph(
            name=file.name.partition(".")[0].removesuffix("_stripped"),
            num_vertices=used.size,
            src=src,
            dst=dst,
            source=str(path),
            checksum=sha256(files),
            edge_type=edge_type,
            vertex_type=_kinds(terms),
            relation_names=relation_names,
            vertex_id=_ids(terms),
            **labels,
        )
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def rdf_files(path: Path) -> list[Path]:
    """List the files that `read_rdf` reads, whether they are there or not."""
    file = _find(path)
    return [file, *(file.parent / name for name in _tables_of(file.parent))]


def _tables_of(folder: Path) -> tuple[str, str]:
    """Return the names of the training and the test set, of which one at least is there, if any."""
    return next(
        (names for names in _TABLES if any((folder / name).is_file() for name in names)), _TABLES[0]
    )


def _files_of(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.name.endswith(RDF_SUFFIXES))


def _find(path: Path) -> Path:
    if not path.is_dir():
        return path
    files = _files_of(path)
    stripped = [file for file in files if "_stripped." in file.name]
    chosen = stripped or files
    if len(chosen) != 1:
        names = ", ".join(file.name for file in chosen) or "none"
        raise InputError(f"folder {path} must have one .nt or .nt.gz file, got {names}; give one")
    return chosen[0]


def _without_targets(triples: Triples, file: Path) -> Triples:
    targets = [i for i, name in enumerate(triples.predicates) if name in _TARGETS]
    is_kept = ~np.isin(triples.predicate, targets)
    if is_kept.all():
        return triples
    names = ", ".join(text_of(triples.predicates[i]) for i in targets)
    _LOGGER.info("%s: %d statements of %s left out", file, int((~is_kept).sum()), names)
    if not is_kept.any():
        raise InputError(f"{file} has statements of {names} only, which are the labels; add others")
    return Triples(
        triples.subject[is_kept],
        triples.predicate[is_kept],
        triples.object[is_kept],
        triples.terms,
        triples.predicates,
    )


def _relations(triples: Triples) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the relation of each edge and the names of all, the most frequent first."""
    count = np.bincount(triples.predicate, minlength=len(triples.predicates))
    order = np.lexsort((np.array(triples.predicates), -count))
    order = order[count[order] > 0]
    number = np.zeros(count.size, dtype=np.int64)
    number[order] = np.arange(order.size)
    return number[triples.predicate], tuple(text_of(triples.predicates[i]) for i in order)


def _kinds(terms: list[bytes]) -> NDArray[np.int64]:
    first = np.frombuffer(b"".join(term[:1] for term in terms), np.uint8)
    return np.select([first == ord("<"), first == ord("_")], [0, 1], 2).astype(np.int64)


def _ids(terms: list[bytes]) -> NDArray[np.str_] | None:
    """Return the terms as ids, unless a long one would make the array of all of them large."""
    longest = max(map(len, terms))
    if longest * len(terms) > _MOST_ID_CHARACTERS:
        return None
    ids = np.array([text_of(term) for term in terms])
    return ids if np.unique(ids).size == ids.size else None


_MOST_ID_CHARACTERS = 1 << 28


def _labels(terms: list[bytes], files: list[Path]) -> dict[str, Any]:
    """Return labels, their names and masks; the published split has no validation vertices."""
    sets = [_read_set(file) for file in files]
    wanted = {entity for entities, _ in sets for entity in entities}
    vertex_of = {
        text: vertex
        for vertex, term in enumerate(terms)
        if term.startswith(b"<") and (text := text_of(term)) in wanted
    }
    classes = sorted({label for _, labels in sets for label in labels})
    labels = np.full(len(terms), -1, dtype=np.int64)
    chosen = []
    for file, (entities, names) in zip(files, sets, strict=True):
        known = [
            (vertex_of[e], name) for e, name in zip(entities, names, strict=True) if e in vertex_of
        ]
        if len(known) < len(entities):
            _LOGGER.warning(
                "%s: %d of %d entities are in no statement and left out",
                file,
                len(entities) - len(known),
                len(entities),
            )
        if not known:
            raise InputError(f"{file} lists no entity of the graph; they must belong together")
        vertices = np.array([vertex for vertex, _ in known])
        labels[vertices] = [classes.index(name) for _, name in known]
        chosen.append(vertices)
    masks = np.zeros((2, len(terms)), dtype=np.bool_)
    for mask, vertices in zip(masks, chosen, strict=True):
        mask[vertices] = True
    split = {"train_mask": masks[0], "test_mask": masks[1]}
    return {"labels": labels, "class_names": tuple(classes), **split}


def _read_set(file: Path) -> tuple[list[str], list[str]]:
    """Return the entities and the labels of a table."""
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.reader(stream, delimiter="\t"))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file} is no table of texts ({error}); fetch it again") from error
    header = rows[0] if rows else []
    entity = next((header.index(name) for name in _ENTITY_COLUMNS if name in header), None)
    label = next((i for i, name in enumerate(header) if name.startswith(_LABEL_PREFIX)), None)
    if entity is None or label is None:
        raise InputError(
            f"{file} has the columns {', '.join(header)}; one must be "
            f"{' or '.join(_ENTITY_COLUMNS)} and one begin with {_LABEL_PREFIX}"
        )
    body = [row for row in rows[1:] if row]
    for number, row in enumerate(body):
        if len(row) <= max(entity, label) or not row[entity] or not row[label]:
            raise InputError(f"row {number + 1} of {file} has no entity or no label; add it")
    return [row[entity] for row in body], [row[label] for row in body]
