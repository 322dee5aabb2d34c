from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from graphs import cut, make_graph
from second_device import DEVICE, SecondDevice, use_second_device
from training import MODELS, TYPED_MODELS, ends_of, make_config

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.comm.transports.staged import StagedGroup
from distgnn.datasets.held_out import hold_out_links
from distgnn.training.loop.replay import Called, Replayed
from distgnn.training.loop.trainer import Trainer
from distgnn.training.run.checkpoint import Checkpoints

CASES = {
    "sage-dropout": ("random", {"dropout": 0.4}),
    "sage-bf16": ("random", {"activations_dtype": "bf16"}),
    "sage-sparse": ("sparse-features", {"input_dropout": 0.3}),
    "sage-max": ("random", {"aggregator": "max"}),
    "sage-delayed": ("random", {"algorithm": "cd-2"}),
    "sage-int8": ("random", {"halo": "int8(round=near)", "hidden": 20}),
    "gat-int8": ("random", {"model": "gat", "heads": 2, "hidden": 10, "halo": "int8(round=near)"}),
    "sage-remembering": ("random", {"halo": "delay(1)+int8(round=near)+delta", "hidden": 20}),
    "sage-alone": ("random", {"algorithm": "0c", "reweight_loss": True}),
    "gcn-batch-norm": ("weighted", {"model": "gcn", "norm": "batch", "residual": True}),
    "gcn-both-degrees": ("random", {"model": "gcn", "degrees": "out-in"}),
    "gcn-weighted-both-degrees": ("weighted", {"model": "gcn", "degrees": "out-in"}),
    "gcn-rates": ("random", {"model": "gcn", "lr_schedule": "step:3:0.5", "lr_warm_up": 1}),
    "sage-class-weights": ("random", {"class_weights": "balanced", "label_smoothing": 0.1}),
    "gcn-average": ("random", {"model": "gcn", "ema": 0.5}),
    "appnp": ("weighted", {"model": "appnp", "hops": 2}),
    "gat": ("random", {"model": "gat", "heads": 2}),
    "gatv2-dropout": ("random", {"model": "gatv2", "heads": 2, "attention_dropout": 0.5}),
    "gat-edges": ("edge-features", {"model": "gat", "heads": 2}),
    "gin-edges": ("edge-features", {"model": "gin"}),
    "rgcn": ("typed", {"model": "rgcn"}),
    "links": ("links", {"task": "link", "metric": "hits@10", "decoder": "mlp"}),
    "sage-streamed": ("random", {"features_on": "host"}),
    "sage-streamed-dropout": ("random", {"features_on": "host", "input_dropout": 0.4}),
    "gcn-streamed": ("weighted", {"features_on": "host", "model": "gcn", "input_dropout": 0.4}),
    "gat-streamed": ("random", {"features_on": "host", "model": "gat", "heads": 2}),
    "sage-streamed-alone": ("random", {"features_on": "host", "algorithm": "0c"}),
    "sage-streamed-max": ("random", {"features_on": "host", "aggregator": "max"}),
}
# Every model, where that takes no interpreter.
MORE_CASES = CASES | {
    f"{kind}: {name}": (kind, options)
    for kind, models in (("random", MODELS), ("typed", TYPED_MODELS), ("featureless", TYPED_MODELS))
    for name, options in models.items()
}


@pytest.fixture
def _second_device(monkeypatch):
    use_second_device(monkeypatch)


SLOW = (
    *("appnp", "gat", "gat-int8", "gat-edges", "gat-streamed", "gatv2-dropout", "gcn-streamed"),
    *("gcn-batch-norm", "gin-edges", "links", "rgcn", "sage-sparse", "sage-streamed-max"),
)


def graph_of(kind, num_vertices):
    if kind != "links":
        return make_graph(kind, num_vertices=num_vertices)
    # Hits@10 wants ten links in each split.
    return hold_out_links(make_graph(num_vertices=num_vertices + 8), "0.6/0.2/0.2")


def train(graph, parts, config):
    """Records and weights of a run on the processor, by rank."""

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        return list(trainer.epochs()), trainer.model.state_dict()

    return run_ranks(len(parts), on_rank)


def train_on(device, graph, parts, config, folder):
    """The same on a device, going on from a checkpoint in the folder, where one is left."""

    def on_rank(group):
        with SecondDevice() if device == DEVICE else nullcontext():
            group = StagedGroup(group, device)
            part = parts[group.rank]
            trainer = Trainer(config, ends_of(graph), part, group, device=group.device)
            assert all(weight.device.type == device.type for weight in trainer.model.parameters())
            checkpoints = Checkpoints(folder, group, layout=trainer._layout)
            trainer.resume(checkpoints)
            records = list(trainer.epochs())
            trainer.save(checkpoints)
            state = trainer.model.state_dict()
            return records, {name: value.cpu() for name, value in state.items()}

    return run_ranks(len(parts), on_rank)


def check(got, expected, *, rel):
    for (one, weights), (other, expected_weights) in zip(got, expected, strict=True):
        for left, right in zip(one, other, strict=True):
            for key in ("loss", "train_metric", "val_metric", "halo_bytes_sent"):
                # Links have no metric in training.
                wanted = right[key] if right[key] is None else pytest.approx(right[key], rel=rel)
                assert left[key] == wanted, key
        for key, value in expected_weights.items():
            torch.testing.assert_close(weights[key], value, rtol=10 * rel, atol=10 * rel)


@pytest.mark.usefixtures("_second_device", "multiplied_here")
@pytest.mark.parametrize(
    "name",
    # Triton's interpreter takes seconds to most heads, and to types and codes.
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CASES],
)
def test_a_device_trains_as_the_processor_does(name, tmp_path):
    kind, options = CASES[name]
    graph = graph_of(kind, 16)
    parts, config = cut(graph, 2), make_config(epochs=2, optimizer="sgd", **options)
    got = train_on(DEVICE, graph, parts, config, tmp_path)
    check(got, train(graph, parts, config), rel=1e-2 if name == "sage-bf16" else 1e-5)


# One rank: backward runs on one thread for all ranks of a process that share a device.
@pytest.mark.gpu
@pytest.mark.parametrize("name", MORE_CASES)
def test_a_gpu_trains_as_the_processor_does(name, tmp_path):
    kind, options = MORE_CASES[name]
    graph = graph_of(kind, 300)
    parts, config = cut(graph, 1), make_config(epochs=3, optimizer="sgd", **options)
    got = train_on(torch.device("cuda", 0), graph, parts, config, tmp_path)
    check(got, train(graph, parts, config), rel=2e-2 if name == "sage-bf16" else 1e-4)


# torch takes the device for its own, which has no values to copy; this one copies them.
@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")
@pytest.mark.usefixtures("_second_device")
@pytest.mark.parametrize("options", [{"algorithm": "cd-2"}, {"weights": "changed(0.01)"}])
def test_what_ranks_keep_is_resumed_on_the_device_bit_by_bit(options, tmp_path):
    graph = make_graph("random", num_vertices=16)
    parts = cut(graph, 2)
    straight, half = (make_config(epochs=n, **options) for n in (4, 2))
    expected = train_on(DEVICE, graph, parts, straight, tmp_path / "straight")
    train_on(DEVICE, graph, parts, half, tmp_path / "resumed")
    got = train_on(DEVICE, graph, parts, straight, tmp_path / "resumed")
    for (one, weights), (other, wanted) in zip(got, expected, strict=True):
        assert [r["loss"] for r in one] == [r["loss"] for r in other[2:]]
        assert all(torch.equal(weights[key], value) for key, value in wanted.items())


@pytest.mark.usefixtures("_second_device")
def test_the_second_device_refuses_what_cuda_refuses():
    with SecondDevice():
        far, near = torch.ones(2, device=DEVICE), torch.ones(2)
        with pytest.raises(AssertionError, match=r"aten::add.Tensor mixes devices"):
            far + near
        assert float((far + 1).sum()) == 4
        with pytest.raises((RuntimeError, TypeError)):
            far.numpy()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", MORE_CASES)
def test_replayed_steps_have_the_bits_of_steps(name):
    kind, options = MORE_CASES[name]
    graph, found = graph_of(kind, 60), []
    for replay in (True, False):
        (part,), group = cut(graph, 1), StagedGroup(SingleGroup(), torch.device("cuda"))
        config = make_config(epochs=8, **options, replay=replay)
        trainer = Trainer(config, ends_of(graph), part, group, device=group.device)
        records = list(trainer.epochs())
        kept = [(each["loss"], each["val_metric"]) for each in records]
        found.append((kept, trainer.model.state_dict()))
        is_drawn = options.get("task") == "link"
        is_streamed = options.get("features_on") == "host"
        if replay and not is_drawn and not is_streamed:
            assert isinstance(trainer.steps, Replayed)
            assert isinstance(trainer.scores, Replayed)
            note = trainer.steps.take_note()
            assert "a step is replayed as a CUDA graph from now on" in note
        else:
            assert isinstance(trainer.steps, Called)
    assert found[0][0] == found[1][0]
    for key, value in found[0][1].items():
        assert torch.equal(value, found[1][1][key]), key
