"""Settings of what a run reads and learns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from distgnn.settings.fields import SHARE, at_least, flag
from distgnn.settings.names import DecoderName, DtypeName

FeatureNorm = Literal["none", "row", "standard"]
TASK_CHOICES = ("auto", "single-label", "multi-label", "regression", "link")
METRIC_NAMES = (
    *("accuracy", "macro-f1", "roc-auc", "average-precision", "micro-f1", "mse", "mae", "r2"),
    *("mrr", "hits@10", "hits@20", "hits@50", "hits@100"),
)
"""Names of the metrics of `training.tasks`, in its order."""


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Data that a run reads, and the task that it learns."""

    GROUP: ClassVar[str] = "data and task"

    task: str = flag(
        "auto",
        "what the labels are for: single-label, multi-label or regression; or link (default: "
        "link where the graph holds links out, else as the labels are stored)",
        choices=TASK_CHOICES,
        is_predicted=True,
    )
    metric: str = flag(
        "auto",
        "accuracy, micro-f1, macro-f1, roc-auc, average-precision, mse, mae or r2; of link mrr or "
        "hits@10, @20, @50 or @100; chooses the best epoch (default: the data set's, else the "
        "task's)",
        choices=("auto", *METRIC_NAMES),
        is_common=True,
    )
    decoder: DecoderName = flag(
        "dot",
        "of link, from the rows of both ends to a score: dot, or mlp of their product "
        "(default: %(default)s)",
    )
    feature_norm: FeatureNorm = flag(
        "none",
        "of vertices; features of edges are read as they are (default: %(default)s)",
        metavar="none|row|standard",
        is_common=True,
    )
    features_dtype: DtypeName = flag(
        "fp32",
        "how dense features are stored; bf16 takes half the memory (default: %(default)s)",
        metavar="fp32|bf16",
        is_predicted=True,
    )
    labels_as_input: float = flag(
        0.0,
        "in each epoch another random share F of the training vertices gives its labels as "
        "columns of the input, and the loss is that of the others; in evaluation and prediction "
        "all give theirs, so that the metric of training vertices says little (default: none)",
        SHARE,
        metavar="F",
        is_predicted=True,
    )
    split_index: int = flag(
        0, "row of the masks (default: %(default)s)", at_least(0), metavar="K", is_predicted=True
    )
