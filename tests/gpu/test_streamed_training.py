"""Features in host memory beside features on the device."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import cut, make_graph
from second_device import DEVICE, SecondDevice, use_second_device
from training import ends_of, make_config

from distgnn.comm.single import SingleGroup
from distgnn.comm.transports.staged import StagedGroup
from distgnn.ops import host_rows
from distgnn.ops.host_rows import HostRows
from distgnn.training.loop import trainer as trainer_module
from distgnn.training.loop.replay import Called
from distgnn.training.loop.trainer import Trainer

CUDA = torch.device("cuda", 0)
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
NUM_ROWS, WIDTH = 20_000, 512
FEATURE_BYTES = NUM_ROWS * WIDTH * 4
MODELS = {
    "sage": {},
    "sage-deep": {"layers": 3, "norm": "layer", "recompute": True},
    "sage-max": {"aggregator": "max"},
    "gcn": {"model": "gcn"},
    "gcn-dropout": {"model": "gcn", "dropout": 0.4, "input_dropout": 0.4},
    "gat": {"model": "gat", "heads": 2, "input_dropout": 0.4},
    "gin": {"model": "gin"},
    "sgc": {"model": "sgc", "layers": 1},
    "appnp": {"model": "appnp", "hops": 2},
}


def trained(graph, **options):
    """Losses of a run on a GPU, and the most memory that its tensors took there."""
    (part,), group = cut(graph, 1), StagedGroup(SingleGroup(), CUDA)
    gc.collect()
    before = torch.cuda.memory_allocated(CUDA)
    torch.cuda.reset_peak_memory_stats(CUDA)
    config = make_config(epochs=5, optimizer="sgd", hidden=8, **options, replay=False)
    trainer = Trainer(config, ends_of(graph), part, group, device=CUDA)
    records = list(trainer.epochs())
    torch.cuda.synchronize(CUDA)
    peak = torch.cuda.max_memory_allocated(CUDA) - before
    features = trainer.inputs.features
    if isinstance(features, HostRows):
        assert all(part.is_pinned() for part in features.slices)
    return [(each["loss"], each["val_metric"]) for each in records], peak


@pytest.mark.gpu
@NEEDS_GPU
@pytest.mark.parametrize("name", MODELS)
def test_streamed_features_train_the_same_and_leave_their_memory_free(name, monkeypatch):
    monkeypatch.setattr(host_rows, "SLICE_BYTES", 1 << 20)
    monkeypatch.setattr(host_rows, "COLUMNS", 16)
    graph = make_graph("random", num_vertices=NUM_ROWS)
    features = np.random.default_rng(0).normal(size=(NUM_ROWS, WIDTH)).astype(np.float32)
    graph = replace(graph, features=features)
    found = {
        where: trained(graph, features_on=where, **MODELS[name]) for where in ("device", "host")
    }
    for one, other in zip(found["host"][0], found["device"][0], strict=True):
        assert one == pytest.approx(other, rel=1e-5)
    assert found["device"][1] - found["host"][1] > 0.8 * FEATURE_BYTES


@pytest.mark.gpu
@NEEDS_GPU
def test_a_slice_is_neither_read_too_early_nor_overwritten_too_early(monkeypatch):
    monkeypatch.setattr(host_rows, "SLICE_BYTES", 1 << 22)
    values = torch.randn(1 << 18, 64)
    rows = HostRows.of(values, CUDA)
    assert len(rows.slices) == 16
    slow, out = torch.randn(4096, 4096, device=CUDA), torch.empty_like(values, device=CUDA)
    for has_work in (True, False):
        for _ in range(5):
            out.zero_()
            for start, part in rows.on_device():
                if has_work:
                    slow @ slow
                out[start : start + len(part)] = part
            assert torch.equal(out.cpu(), values)
    # Two passes at once would share the buffers; two streams in turn may.
    stream = torch.cuda.Stream(CUDA)
    stream.wait_stream(torch.cuda.current_stream(CUDA))
    for _ in range(5):
        with torch.cuda.stream(stream):
            slow @ slow
            there = rows.to_dense()
        here = rows.to_dense()
        torch.cuda.synchronize(CUDA)
        assert torch.equal(here.cpu(), values)
        assert torch.equal(there.cpu(), values)


@pytest.mark.gpu
@NEEDS_GPU
def test_products_of_streamed_rows_overlap_their_copies():
    values = torch.randn(1 << 19, 256)
    rows, weight = HostRows.of(values, CUDA), torch.randn(2048, 256, device=CUDA)
    first = rows.matmul(weight.t())
    for _ in range(3):
        assert torch.equal(rows.matmul(weight.t()), first)
    torch.testing.assert_close(first, values.to(CUDA) @ weight.t(), rtol=1e-2, atol=1e-1)


def test_steps_with_streamed_features_are_not_replayed(monkeypatch):
    use_second_device(monkeypatch)
    made = []
    monkeypatch.setattr(
        "distgnn.training.loop.trainer.build_repeated",
        lambda name, function, graph, *, is_wanted: made.append(is_wanted) or Called(function),
    )
    graph = make_graph("random", num_vertices=16)
    for where in ("device", "host"):
        with SecondDevice():
            group = StagedGroup(SingleGroup(), DEVICE)
            config = make_config(features_on=where)
            Trainer(config, ends_of(graph), cut(graph, 1)[0], group, device=DEVICE)
    assert made == [True, True, False, False]


@pytest.mark.parametrize("where", ["device", "host"])
def test_features_are_not_held_where_they_were_while_more_is_made_of_them(where, monkeypatch):
    use_second_device(monkeypatch)
    load, build = trainer_module.load_task, trainer_module.build_graphs
    read, is_held = [], []

    def loaded(*about, **options):
        inputs = load(*about, **options)
        read.append(weakref.ref(inputs.features))
        return inputs

    def built(*about, **options):
        is_held.append(read[0]() is not None)
        return build(*about, **options)

    monkeypatch.setattr(trainer_module, "load_task", loaded)
    monkeypatch.setattr(trainer_module, "build_graphs", built)
    graph = make_graph("random", num_vertices=16)
    with SecondDevice():
        group, config = StagedGroup(SingleGroup(), DEVICE), make_config(features_on=where)
        Trainer(config, ends_of(graph), cut(graph, 1)[0], group, device=DEVICE)
    assert is_held == [False]
