"""Arguments that describe the source of a graph."""

from __future__ import annotations

import argparse

from distgnn.api.source import SWITCHES, SourceOptions
from distgnn.cli.flags import path
from distgnn.datasets.columns import FLAGS as COLUMN_FLAGS
from distgnn.datasets.columns import IMPUTE_CHOICES, SEVERAL, Columns, parse_names
from distgnn.datasets.columns import KEYWORDS as COLUMN_KEYWORDS
from distgnn.datasets.errors import InputError


def add_source_arguments(parser: argparse.ArgumentParser, *, or_parts: bool) -> None:
    """Add the arguments of a graph's source.

    Args:
        parser: Parser of the verb.
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
        "--drop-self-loops", action="store_true", help="leave out edges from a vertex to itself"
    )
    parser.add_argument(
        "--deduplicate",
        action="store_true",
        help="keep one of several edges with the same ends and type: the first, with its weight",
    )
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
        "edge_type": "column of an edge list: relations, texts or whole numbers, for --model rgcn "
        "and the like",
        "edge_features": "columns of an edge list: features of edges (default: all other numbers)",
        "id": "column of the vertex table: ids (default: id)",
        "label": "column of the vertex table: labels (default: label, or several label_NAME)",
        "features": "columns of the vertex table: features (default: all other numbers)",
        "one_hot": "columns of the vertex table: categories; each of their values becomes a "
        "feature of 0 and 1",
    }
    for field, text in help_of.items():
        is_several = field in SEVERAL
        parser.add_argument(
            COLUMN_FLAGS[field],
            type=_names if is_several else str,
            metavar="A,B,..." if is_several else "NAME",
            help=text,
        )
    parser.add_argument(
        COLUMN_FLAGS["impute"],
        choices=IMPUTE_CHOICES,
        help="value in the place of each missing number among the features of a table: mean or "
        "median of its column over all vertices or edges, or zero (default: they are refused)",
    )


def _names(text: str) -> tuple[str, ...]:
    """Convert names between commas; a name with a comma stands between double quotes."""
    try:
        return parse_names(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _columns(arguments: argparse.Namespace) -> Columns:
    found = {field: getattr(arguments, name) for field, name in COLUMN_KEYWORDS.items()}
    return Columns(**found, label_values=True if arguments.task == "regression" else None)


def source_options(arguments: argparse.Namespace) -> SourceOptions:
    """Return the source that the arguments describe.

    Args:
        arguments: Parsed arguments, with those of `add_source_arguments` and the seed.
    """
    names = ("source", "root", "vertices", *SWITCHES)
    given = {name: getattr(arguments, name) for name in (*names, "split", "edge_split", "seed")}
    return SourceOptions(columns=_columns(arguments), **given)
