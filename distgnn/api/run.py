"""The nouns of runs: a Run and a Series of runs, each a directory."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.training.run.directory import SUMMARY, RunDirectory

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from distgnn.datasets.graph import Graph

_SPLITS = ("test", "val", "train")


class Run:
    """A RUN directory: a trained model, its settings, and the record of its epochs.

    Args:
        path: The directory.
        summary: Its summary, if that is known already; None to read it when it is asked for.
        source: Graph in memory that it was trained on; None for a source with a name.
        model: Class or function that made the model, if the user wrote it.

    Attributes:
        path: The directory.
        graph: Graph in memory that it was trained on, or None.
        model: Class or function that made the model, or None.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        summary: dict[str, Any] | None = None,
        *,
        source: Graph | None = None,
        model: Callable[[Any], nn.Module] | None = None,
    ) -> None:
        self.model = model
        self.path = Path(path)
        self.graph = source
        self._directory = RunDirectory(self.path)
        self._summary = summary

    @property
    def config(self) -> dict[str, Any]:
        """Content of config.json: the settings of training, the source, and the graph.

        Raises:
            InputError: If the directory holds no run.
        """
        return self._directory.read_config()

    @property
    def summary(self) -> dict[str, Any]:
        """Content of summary.json: metrics, times and bytes of the whole run.

        Raises:
            InputError: If the run has not ended.
        """
        if self._summary is None:
            self._summary = self._directory.read_json(SUMMARY)
        return dict(self._summary)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Content of metrics.jsonl: a record per epoch."""
        return self._directory.read_metrics()

    @property
    def test_metric(self) -> float | None:
        """Test metric at the best epoch; None without test vertices."""
        return self._number("test_metric")

    @property
    def val_metric(self) -> float | None:
        """Validation metric at the best epoch; None without validation vertices."""
        return self._number("val_metric")

    @property
    def best_epoch(self) -> int:
        """Epoch with the best validation metric; its weights are kept."""
        return int(self.summary["best_epoch"])

    def _number(self, name: str) -> float | None:
        value = self.summary[name]
        return None if value is None else float(value)

    def evaluate(self, **settings: Any) -> dict[str, Any]:
        """Score the run on its graph; see `distgnn.evaluate`."""
        from distgnn.api.use import evaluate

        return evaluate(self, **settings)

    def predict(self, **settings: Any) -> NDArray[Any]:
        """Predict every vertex; see `distgnn.predict`."""
        from distgnn.api.use import predict

        return predict(self, **settings)

    def embed(self, **settings: Any) -> NDArray[Any]:
        """Compute the rows of the last hidden layer; see `distgnn.embed`."""
        from distgnn.api.use import embed

        return embed(self, **settings)

    def state_dict(self) -> dict[str, Tensor]:
        """Read the weights of the best epoch.

        Returns:
            Tensors by name, on the processor.

        Raises:
            InputError: If the run has not ended, or the file is damaged.
        """
        from distgnn.training.run.tensors import read_tensors

        return read_tensors(self._directory.model_path)

    def to_pyg(self) -> Any:
        """Build a model of PyG with the weights of the best epoch and the same outputs.

        Returns:
            A `torch_geometric.nn.Sequential` in evaluation mode, called as `model(x, edge_index)`
            with the features and edges of the graph. Weighted edges give gcn, sgc and appnp a
            third argument `edge_weight`. Edge features and types that the layers read are
            `edge_attr` and `edge_type`. It returns (num_vertices, num_classes) scores before
            softmax or sigmoid; of a run that learned links, the rows that its decoder reads.
            Self-loops that ours adds are added, where no vertex has several.

        Raises:
            InputError: If the run has not ended, or layers of PyG compute something else. They do
                for a model of the user's own, --labels-as-input, --degrees out-in, --aggregator
                gcn and --relation-norm all. Weighted edges need gcn, sgc, appnp, gat or gatv2.
        """
        from distgnn.api.use import to_pyg

        return to_pyg(self)

    def __repr__(self) -> str:
        """Say in two lines what the run is."""
        if not self._directory.has_run():
            return f"Run('{self.path}')\n  no run was begun here"
        config, metrics = self.config, self.metrics
        shape, task = config["train"]["model"], config["task"]
        model = shape["own"] or shape["model"]
        first = f"Run('{self.path}'): {model} on {task['name']}, {len(metrics)} epochs"
        if self._summary is None and not (self.path / SUMMARY).is_file():
            return f"{first}\n  has not ended"
        found = self.summary
        shown = ", ".join(f"{split} {_text(found[f'{split}_metric'])}" for split in _SPLITS)
        return f"{first}\n  {found['metric']} at epoch {found['best_epoch']}: {shown}"

    def _repr_html_(self) -> str:
        """Return a small table for notebooks."""
        first, second = repr(self).split("\n", 1)
        if self._summary is None and not (self.path / SUMMARY).is_file():
            return f"<p>{html.escape(first)}<br>{html.escape(second.strip())}</p>"
        found = self.summary
        rows = {
            "metric": found["metric"],
            **{split: _text(found[f"{split}_metric"]) for split in _SPLITS},
            "best epoch": f"{found['best_epoch']} of {found['num_epochs']}",
            "median epoch": f"{1e3 * found['median_epoch_s']:.2f} ms",
        }
        return _table(first, rows)


class Series:
    """A directory of runs with one configuration, over several seeds or splits.

    Args:
        path: The directory.
        summary: Content of its series.json.

    Attributes:
        path: The directory.
        summary: Content of its series.json: means, standard deviations, and a record per run.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        summary: dict[str, Any],
        *,
        source: Graph | None = None,
        model: Callable[[Any], nn.Module] | None = None,
    ) -> None:
        self.path = Path(path)
        self.summary = summary
        self._source, self._model = source, model

    @property
    def runs(self) -> list[Run]:
        """The runs, in the order of their training."""
        return [
            Run(self.path / record["run"], source=self._source, model=self._model)
            for record in self.summary["runs"]
        ]

    @property
    def test_metric(self) -> float | None:
        """Mean of the runs' test metrics; None without test vertices."""
        value = self.summary["test_metric_mean"]
        return None if value is None else float(value)

    @property
    def test_metric_std(self) -> float | None:
        """Unbiased standard deviation of the runs' test metrics; None for one run."""
        value = self.summary["test_metric_std"]
        return None if value is None else float(value)

    def __repr__(self) -> str:
        """Say in two lines what the series is."""
        return f"Series('{self.path}'): {self.summary['num_runs']} runs\n  {self._figures()}"

    def _repr_html_(self) -> str:
        """Return a small table for notebooks."""
        first = repr(self).split("\n", 1)[0]
        return _table(first, {record["run"]: _text(record["test_metric"]) for record in self._all})

    @property
    def _all(self) -> list[dict[str, Any]]:
        return list(self.summary["runs"])

    def _figures(self) -> str:
        from distgnn.training.run.series import as_published

        name = self.summary["metric"]
        shown = [
            f"{split} "
            + as_published(
                self.summary[f"{split}_metric_mean"], self.summary[f"{split}_metric_std"], name
            )
            for split in _SPLITS
        ]
        return f"{name}: {', '.join(shown)}"


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _table(caption: str, rows: dict[str, Any]) -> str:
    cells = "".join(
        f"<tr><th>{html.escape(str(name))}</th><td>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table><caption>{html.escape(caption)}</caption>{cells}</table>"
