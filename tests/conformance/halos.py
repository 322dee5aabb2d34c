"""Short trainings whose rows are written in a code, on ranks as threads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from training import EDGE_MODELS, MODELS, TYPED_MODELS, ends_of, make_config

from distgnn.comm.threads import run_ranks
from distgnn.exchange.codec import EXACT, CodecSpec, HaloCodecs
from distgnn.forecast.traffic import planned_bytes
from distgnn.training.loop.trainer import Trainer

if TYPE_CHECKING:
    from distgnn.datasets import Graph
    from distgnn.partition.directory.store import Part


def narrow(bits: int, *, is_random: bool = True) -> CodecSpec:
    """Return a codec of all rows, however few columns the models of tests have."""
    return CodecSpec(bits, is_random=is_random, least_columns=1)


NAMES = ("bf16", "int8", "int8-near", "int4", "int4-near", "int2", "int1", "mixed")


def codecs_of(name: str) -> HaloCodecs:
    """Return the codecs of a name of `NAMES`."""
    if name == "mixed":
        return HaloCodecs(narrow(8, is_random=False), narrow(4))
    bits, _, rounding = name.removeprefix("int").removeprefix("bf").partition("-")
    codec = narrow(int(bits), is_random=rounding != "near")
    return HaloCodecs(codec, codec)


EXACT_ROWS = HaloCodecs(EXACT, EXACT)
EDGE_READERS = {f"edges-{name}": options for name, options in EDGE_MODELS.items()}
ALL_MODELS = {**MODELS, **TYPED_MODELS, **EDGE_READERS}
"""Options by the name of a model; those of `EDGE_READERS` read features of edges."""


class Found(NamedTuple):
    """Training as rank 0 saw it, with what all ranks said before.

    Attributes:
        records: Lines of metrics.jsonl.
        grads: Gradients of each step, by parameter.
        planned: Bytes that the ranks predicted for an epoch.
    """

    records: list[dict[str, Any]]
    grads: list[dict[str, torch.Tensor]]
    planned: int


def trained(
    parts: list[Part],
    graph: Graph,
    name: str,
    codecs: HaloCodecs,
    *,
    num_epochs: int = 1,
    **options: Any,
) -> Found:
    """Train a named model; all ranks must step with the same gradients."""
    # All layers send rows in every epoch, the first one, too.
    settings = {"hidden": 5, "epochs": num_epochs, "static_input": False}
    settings |= ALL_MODELS[name] | options
    config = make_config(optimizer="sgd", **settings)

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        trainer.graph.exchange.codecs = codecs
        grads = []
        step = trainer.optimizer.step

        def record_and_step():
            named = trainer.model.named_parameters()
            grads.append({name: p.grad.clone() for name, p in named if p.grad is not None})
            return step()

        trainer.optimizer.step = record_and_step
        planned = planned_bytes(config, trainer.model, trainer.graphs)
        return list(trainer.epochs()), grads, planned

    results = run_ranks(len(parts), on_rank)
    for _, grads, _ in results[1:]:
        for one, other in zip(grads, results[0][1], strict=True):
            assert all(torch.equal(one[name], other[name]) for name in other)
    records, grads, _ = results[0]
    return Found(records, grads, sum(planned for _, _, planned in results))


def wide(codecs: HaloCodecs, least_columns: int) -> HaloCodecs:
    """Return codecs that leave narrower rows as they are."""
    forward, backward = (
        replace(codec, least_columns=least_columns) for codec in (codecs.forward, codecs.backward)
    )
    return HaloCodecs(forward, backward)
