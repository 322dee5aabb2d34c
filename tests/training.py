"""Whole training runs on ranks as threads, for tests of the training room."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from graphs import cut, make_graph

from distgnn.comm.threads import run_ranks
from distgnn.nn.config import ModelConfig
from distgnn.training.config.settings import TrainConfig
from distgnn.training.data.info import DataInfo
from distgnn.training.loop.progress import Silent
from distgnn.training.loop.trainer import Trainer
from distgnn.training.run.directory import RunDirectory
from distgnn.training.run.writer import train
from distgnn.training.tasks.tasks import METRICS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from distgnn.comm.group import Group
    from distgnn.datasets import Graph
    from distgnn.partition.directory.store import Part

ends_of = DataInfo.of
MODEL_FIELDS = {item.name for item in fields(ModelConfig)}


class StopError(Exception):
    """Ends a run in the middle, as a kill would."""


class StopAt(Silent):
    """Ends the run after an epoch."""

    def __init__(self, epoch: int | None) -> None:
        self._epoch = epoch

    def epoch(self, record):
        if record["epoch"] == self._epoch:
            raise StopError


@dataclass
class Trained:
    """State of a rank after a run."""

    trainer: Trainer
    records: list[dict[str, Any]]
    summary: dict[str, Any] | None
    damaged: list[str]


def make_config(**options: Any) -> TrainConfig:
    """Build a configuration from the fields of the run and of its model."""
    small = {"hidden": 4, "dropout": 0.0, "epochs": 3, **options}
    model = {key: small.pop(key) for key in list(small) if key in MODEL_FIELDS}
    return TrainConfig(model=ModelConfig(**model), **small)


def trained_on_ranks(num_parts: int, **options: Any) -> list[tuple[list[Any], dict[str, Any]]]:
    """Train a small model on a small graph; return records and state of each rank."""
    graph = make_graph()
    parts = cut(graph, num_parts)
    config = make_config(**{"epochs": 5, "model": "gcn", **options})

    def on_rank(group: Group) -> tuple[list[Any], dict[str, Any]]:
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        records = list(trainer.epochs())
        state = {**trainer.model.state_dict(), "moments": trainer.optimizer.state_dict()}
        return records, state

    return run_ranks(num_parts, on_rank)


def run(
    folder: Path,
    graph: Graph,
    parts: list[Part],
    config: TrainConfig,
    *,
    resume: bool = False,
    stop_at: int | None = None,
    factory: Any = None,
) -> list[Trained]:
    """Train as the command line does; `stop_at` ends the run after that epoch."""
    ends = DataInfo.of(graph)

    def on_rank(group):
        trainer = Trainer(config, ends, parts[group.rank], group, factory=factory)
        run_dir = RunDirectory(folder)
        if group.rank == 0:
            run_dir.create()
            about = {**asdict(ends), "class_names": []}
            values = {"source": {}, "task": about, "train": trainer.config.to_json()}
            run_dir.write_config(values)
        group.barrier()
        checkpoints = trainer.checkpoints(run_dir.checkpoints)
        records: list[dict[str, Any]] = []
        if resume:
            trainer.resume(checkpoints)
            if group.rank == 0:
                run_dir.keep_metrics(trainer.num_epochs)
            group.barrier()
            records = run_dir.read_metrics()
            group.barrier()
        summary = None
        try:
            summary = train(trainer, run_dir, StopAt(stop_at), records=records)
        except StopError:
            assert stop_at is not None
        return Trained(trainer, records, summary, checkpoints.damaged)

    return run_ranks(len(parts), on_rank)


def task_of(part: Part) -> dict[str, str]:
    """The task that a part's labels are for, and its own metric."""
    task = "single-label" if part.labels is None or part.labels.ndim == 1 else "regression"
    if part.labels is not None and part.labels.dtype == np.uint8:
        task = "multi-label"
    return {"task": task, "metric": METRICS[task][0].name}


def check_same_values(left: Any, right: Any) -> None:
    """Compare nested dictionaries of tensors and other values, bit by bit."""
    if isinstance(left, torch.Tensor):
        assert torch.equal(left, right)
    elif isinstance(left, dict):
        assert left.keys() == right.keys()
        for name in left:
            check_same_values(left[name], right[name])
    else:
        assert left == right


def check_resumes(
    folder: Path, graph: Graph, parts: list[Part], config: TrainConfig, stops: Sequence[int]
) -> None:
    """Compare runs that are stopped after an epoch, and resumed, with a straight one, by bits."""
    straight = run(folder / "straight", graph, parts, config)
    for stop_at in stops:
        stopped = folder / f"stopped-{stop_at}"
        run(stopped, graph, parts, config, stop_at=stop_at)
        again = run(stopped, graph, parts, config, resume=True)
        for one, other in zip(straight, again, strict=True):
            check_same_values(one.trainer.model.state_dict(), other.trainer.model.state_dict())
            assert [r["loss"] for r in one.records] == [r["loss"] for r in other.records]


MODELS = {
    "gcn": {"model": "gcn"},
    "sage-mean": {"aggregator": "mean"},
    "sage-gcn": {"aggregator": "gcn"},
    "sage-max": {"aggregator": "max"},
    "gcn-batch-residual": {"model": "gcn", "norm": "batch", "residual": True},
    "sage-layer-jumping": {"norm": "layer", "jumping": "cat", "layers": 3},
    "sage-jumping-max": {"jumping": "max", "residual": True},
    "gcn-dropout": {"model": "gcn", "dropout": 0.4, "input_dropout": 0.3},
    "sage-dropout": {"dropout": 0.4, "input_dropout": 0.3},
    "sage-pool": {"aggregator": "pool", "dropout": 0.4},
    "gcn-out-in": {"model": "gcn", "degrees": "out-in"},
    "gcn-elu": {"model": "gcn", "activation": "elu", "dropout": 0.4},
    "sage-elu": {"activation": "elu", "dropout": 0.4, "layers": 3},
    "gin": {"model": "gin", "eps": 0.5},
    "gin-learned": {"model": "gin", "learn_eps": True, "dropout": 0.4, "norm": "batch"},
    "sgc": {"model": "sgc", "layers": 1, "hops": 3},
    "sgc-near": {"model": "sgc", "hops": 1},
    "sgc-dropout": {"model": "sgc", "hops": 2, "dropout": 0.4, "input_dropout": 0.3},
    "appnp": {"model": "appnp", "hops": 4, "alpha": 0.2},
    "appnp-dropout": {
        "model": "appnp",
        "hops": 3,
        "degrees": "out-in",
        "dropout": 0.4,
        "input_dropout": 0.3,
    },
    "gatv2": {"model": "gatv2", "heads": 2},
    "gatv2-dropout": {"model": "gatv2", "heads": 3, "attention_dropout": 0.5, "dropout": 0.4},
    "gat-attention-dropout": {
        "model": "gat",
        "heads": 2,
        "attention_dropout": 0.5,
        "layers": 3,
        "activation": "elu",
    },
    "gat": {"model": "gat", "heads": 2},
    "gat-dropout": {
        "model": "gat",
        "heads": 3,
        "last_heads": 2,
        "dropout": 0.4,
        "input_dropout": 0.3,
    },
    "gat-batch-residual": {"model": "gat", "norm": "batch", "residual": True, "layers": 3},
    "gcn-mapped-last": {
        "model": "gcn",
        "residual": True,
        "residual_map": True,
        "jumping": "last",
        "norm": "layer",
    },
    "gat-jumping": {"model": "gat", "norm": "layer", "jumping": "cat"},
}
TYPED_MODELS = {
    "rgcn": {"model": "rgcn"},
    "rgcn-dropout": {"model": "rgcn", "bases": 2, "dropout": 0.4},
    "rsage": {"model": "rsage"},
    "rsage-dropout": {"model": "rsage", "bases": 2, "layers": 3, "dropout": 0.4},
    "rsage-batch-residual": {"model": "rsage", "norm": "batch", "residual": True, "layers": 3},
    "rsage-jumping": {"model": "rsage", "jumping": "cat", "relation_norm": "all"},
}
EDGE_MODELS = {
    "gat": {"model": "gat", "heads": 2},
    "gat-deep": {
        "model": "gat",
        "heads": 3,
        "last_heads": 1,
        "layers": 3,
        "dropout": 0.4,
        "attention_dropout": 0.5,
    },
    "gatv2": {"model": "gatv2", "heads": 2},
    "gatv2-batch-residual": {"model": "gatv2", "heads": 2, "norm": "batch", "residual": True},
    "gin": {"model": "gin"},
    "gin-deep": {"model": "gin", "eps": 0.5, "learn_eps": True, "layers": 3, "dropout": 0.4},
}
"""Models that read features of edges."""


def first_step(
    parts: list[Part], graph: Graph, name: str = "", *, num_epochs: int = 1, **options: Any
) -> tuple[list[dict[str, Any]], list[dict[str, torch.Tensor]]]:
    """Loss, gradients and metrics of the first epochs of a named model, on ranks as threads.

    Options are fields of the run and of its model.
    """
    named = {**MODELS, **TYPED_MODELS}[name] if name else {}
    settings = {"hidden": 5, "epochs": num_epochs, **named, **options}
    if settings.get("norm") == "batch":
        # A bias before batch norm has no gradient but rounding, of which Adam makes whole steps.
        settings = {"optimizer": "sgd", **settings}
    config, ends = make_config(**settings), DataInfo.of(graph)

    def on_rank(group):
        trainer = Trainer(config, ends, parts[group.rank], group)
        grads = []
        step = trainer.optimizer.step

        def record_and_step():
            named = trainer.model.named_parameters()
            grads.append({name: p.grad.clone() for name, p in named if p.grad is not None})
            return step()

        trainer.optimizer.step = record_and_step
        records = list(trainer.epochs())
        return records, grads

    results = run_ranks(len(parts), on_rank)
    for records, grads in results[1:]:
        strip = [{k: v for k, v in r.items() if k != "eval_s"} for r in records]
        assert strip == [{k: v for k, v in r.items() if k != "eval_s"} for r in results[0][0]]
        for name, grad in grads[0].items():
            assert torch.equal(grad, results[0][1][0][name]), "ranks step with the same gradient"
    return results[0]


def check_equal(got: Any, expected: Any) -> None:
    """Compare what `first_step` returned: losses, metrics and gradients."""
    for one, other in zip(got[0], expected[0], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
        for name in ("train_metric", "val_metric", "test_metric"):
            assert (one[name] is None) == (other[name] is None)
            assert one[name] is None or one[name] == pytest.approx(other[name], rel=1e-5)
    for one, other in zip(got[1], expected[1], strict=True):
        assert one.keys() == other.keys()
        # Relative to the largest gradient: a bias before batch norm has none but rounding.
        largest = max(float(grad.abs().max()) for grad in other.values() if grad.numel())
        for name, grad in other.items():
            torch.testing.assert_close(one[name], grad, rtol=1e-5, atol=1e-5 * largest, msg=name)
