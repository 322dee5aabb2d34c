"""Data sets of the Open Graph Benchmark as published, and how their folders are told apart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from distgnn.datasets.errors import InputError

SITE = "https://snap.stanford.edu/ogb/data/nodeproppred"
BINARY, TYPED, PLAIN = "data.npz", "triplet-type-list.csv.gz", "edge.csv.gz"
"""The file of raw/ that each layout has."""
_LINK_PREFIX = "ogbl-"


@dataclass(frozen=True, kw_only=True)
class Published:
    """A data set as it is published.

    Attributes:
        name: Name of the data set.
        archive: The zip file without its suffix, and the folder inside it.
        layout: `BINARY`, `TYPED` or `PLAIN`.
        split: The folder below split/.
        is_both_ways: Whether each stored edge stands for both directions.
        metric: Metric of published results.
        licence: Licence of the data.
        num_vertices: Number of vertices.
        num_edges: Directed edges, after both directions are there.
        num_features: Columns.
        num_edge_features: Columns of the features of edges; 0 without.
        num_classes: Classes, or tasks of two classes each.
        notes: Differences that matter beside published figures, a sentence each.
    """

    name: str
    archive: str
    layout: str = PLAIN
    split: str = "time"
    is_both_ways: bool = False
    metric: str = "accuracy"
    licence: str = "ODC-BY"
    num_vertices: int
    num_edges: int
    num_features: int
    num_edge_features: int = 0
    num_classes: int
    notes: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """The folder that the package of OGB unpacks it to."""
        return self.name.replace("-", "_")

    @property
    def url(self) -> str:
        """Address where it is published."""
        return f"{SITE}/{self.archive}.zip"


_ALL = (
    Published(
        name="ogbn-arxiv",
        archive="arxiv",
        num_vertices=169_343,
        num_edges=1_166_243,
        num_features=128,
        num_classes=40,
    ),
    Published(
        name="ogbn-products",
        archive="products",
        split="sales_ranking",
        is_both_ways=True,
        licence="Amazon",
        num_vertices=2_449_029,
        num_edges=123_718_280,
        num_features=100,
        num_classes=47,
    ),
    Published(
        name="ogbn-proteins",
        archive="proteins",
        split="species",
        is_both_ways=True,
        metric="roc-auc",
        licence="CC-0",
        num_vertices=132_534,
        num_edges=79_122_504,
        num_features=8,
        num_edge_features=8,
        num_classes=112,
        notes=("features of a vertex are the mean of those of its edges, as in OGB's baseline",),
    ),
    Published(
        name="ogbn-papers100M",
        archive="papers100M-bin",
        layout=BINARY,
        num_vertices=111_059_956,
        num_edges=1_615_685_872,
        num_features=128,
        num_classes=172,
    ),
    Published(
        name="ogbn-mag",
        archive="mag",
        layout=TYPED,
        num_vertices=1_939_743,
        num_edges=21_111_007,
        num_features=128,
        num_classes=349,
        notes=("only papers have features and labels, the features of all others are 0",),
    ),
)
CATALOGUE = {published.name: published for published in _ALL}
"""By name."""


def published_of(folder: Path) -> Published | None:
    """Return whose raw files a folder has, whatever it is called.

    Args:
        folder: With raw/ and split/, as OGB's archives have them.

    Returns:
        The data set, or None for any other folder.
    """
    for published in _ALL:
        # Those of the plain layout differ in their splits.
        is_split = published.layout != PLAIN or (folder / "split" / published.split).is_dir()
        if is_split and (folder / "raw" / published.layout).is_file():
            return published
    return None


def refuse_links(source: str | Path) -> None:
    """Refuse a data set of links of OGB: its splits are pickles of torch.

    Args:
        source: A name or a path.

    Raises:
        InputError: If the source is one, by its name, its folder or the file of its split.
    """
    path = Path(source)
    found = next(path.glob("split/*/train.pt"), None) if path.is_dir() else None
    if path.suffix == ".pt" and path.is_file():
        found = path
    if found is None and (path.exists() or not str(source).startswith(_LINK_PREFIX)):
        return
    raise InputError(
        f"{str(source)!r} holds links of OGB, whose splits ({found or 'train.pt'}) are pickles, "
        "which distgnn never runs; write edge_index, val_links and test_links to an .npz file with "
        "OGB's own package, as datasets/README.md shows"
    )
