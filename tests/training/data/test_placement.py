"""Features in host memory: the same training, and what cannot have them there."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from graphs import cut, make_graph
from second_device import DEVICE, SecondDevice
from training import MODELS, TYPED_MODELS, check_equal, ends_of, first_step, make_config

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.forecast import room
from distgnn.forecast.memory import device_bytes, predict_added_bytes, predict_host_bytes
from distgnn.forecast.room import why_crowded
from distgnn.forecast.traffic import planned_bytes
from distgnn.ops import host_rows
from distgnn.ops.host_rows import HostRows
from distgnn.training.data.inputs import input_rows
from distgnn.training.data.placement import check_features_on, describe_streamed, place_rows
from distgnn.training.loop.trainer import Trainer


@contextmanager
def streams():
    """Let the processor stream features to itself, five rows and three columns at a time."""

    def place(inputs, *about, device, crowded):
        return replace(inputs, features=HostRows.of(inputs.features, device))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distgnn.training.loop.trainer.place", place)
        patch.setattr(host_rows, "SLICE_BYTES", 5 * 6 * 4)
        patch.setattr(host_rows, "COLUMNS", 3)
        yield


OPTIONS = {
    "whole": {"receptive_field": False},
    "recomputed": {"recompute": True, "layers": 3},
    "anew": {"static_input": False},
    "delayed": {"algorithm": "cd-2", "dropout": 0.3},
    "alone": {"algorithm": "0c"},
    "residual": {"residual": True, "norm": "layer", "layers": 3},
    "bf16": {"activations_dtype": "bf16"},
    "bf16-features": {"features_dtype": "bf16"},
}
MIB = 1 << 20
# What training takes of a device for one rank, features here or in host memory.
SHARES = {"device": 40 * MIB, "host": 10 * MIB}
KINDS = {name: ("random", {"name": name}) for name in MODELS}
KINDS |= {f"typed {name}": ("typed", {"name": name}) for name in TYPED_MODELS}
KINDS |= {
    f"{model} {name}": ("random", {"model": model, **options})
    for model in ("sage", "gcn", "gin")
    for name, options in OPTIONS.items()
    # GIN adds rows of bfloat16 before it multiplies them, and so rounds no weights, on the device.
    if (model, name) != ("gin", "bf16-features")
}


@pytest.mark.usefixtures("multiplied_here")
@pytest.mark.parametrize("name", KINDS)
def test_training_with_features_in_host_memory_is_the_same(name):
    kind, options = KINDS[name]
    graph = make_graph(kind, num_vertices=40)
    for num_parts in (1, 2):
        parts = cut(graph, num_parts)
        expected = first_step(parts, graph, num_epochs=2, **options)
        with streams():
            got = first_step(parts, graph, num_epochs=2, **options)
        check_equal(got, expected)


def trainer_of(graph, parts, group, **options):
    config = make_config(**options)
    return Trainer(config, ends_of(graph), parts[group.rank], group)


@pytest.mark.parametrize("model", ["sage", "gcn", "gat", "gin", "appnp"])
@pytest.mark.parametrize("input_dropout", [0.0, 0.5])
def test_what_streamed_features_send_is_predicted(model, input_dropout):
    graph = make_graph("random", num_vertices=40)
    parts = cut(graph, 2)

    def on_rank(group):
        # Wider than the input: rows that are on the device would be aggregated as they are.
        options = {"model": model, "input_dropout": input_dropout, "hidden": 16}
        trainer = trainer_of(graph, parts, group, **options)
        planned = planned_bytes(trainer.config, trainer.model, trainer.graphs)
        sent = torch.tensor([planned])
        group.all_reduce(sent)
        return [record["halo_bytes_sent"] for record in trainer.epochs()], int(sent)

    with streams():
        for sent, planned in run_ranks(2, on_rank):
            assert sent == [planned] * 3


def test_what_is_made_of_streamed_features_counts_for_the_host():
    graph = make_graph("random", num_vertices=40)
    parts, group = cut(graph, 1), SingleGroup()
    (rows, width), item = graph.features.shape, 4
    here = trainer_of(graph, parts, group, layers=3, receptive_field=False)
    added = predict_added_bytes(here.model, here.graphs)
    assert predict_host_bytes(here.graphs) == 0
    with streams():
        there = trainer_of(graph, parts, group, layers=3, receptive_field=False)
        some = trainer_of(graph, parts, group, layers=1)
        anew = trainer_of(graph, parts, group, static_input=False)
    assert predict_added_bytes(there.model, there.graphs) == added - rows * width * item
    assert predict_host_bytes(there.graphs) == rows * width * item
    num_wanted = some.graphs.training.level(0).num_rows
    assert 0 < num_wanted < rows
    assert predict_host_bytes(some.graphs) == (rows + 2 * num_wanted) * width * item
    assert predict_host_bytes(anew.graphs) == 0


def placed(monkeypatch, left, options=None, *, kind="random", num_parts=1, rooms=None):
    """Where the features of each rank are with so many bytes left on its device."""
    graph = make_graph(kind, num_vertices=40)
    parts = cut(graph, num_parts)
    config = make_config(**(options or {}))

    def on_rank(group):
        features = input_rows(parts[group.rank], group, norm="none", dtype="fp32", needs=False)
        with SecondDevice():
            crowded = why_crowded(config, ends_of(graph), parts[group.rank], group, DEVICE)
            return place_rows(features, config, device=DEVICE, crowded=crowded)

    rooms = iter(rooms or [("device", left)] * num_parts)
    monkeypatch.setattr(room, "room", lambda device: next(rooms))
    return run_ranks(num_parts, on_rank)


def test_features_that_fit_go_to_the_device(monkeypatch):
    assert not isinstance(placed(monkeypatch, 1 << 30)[0], HostRows)
    assert not isinstance(placed(monkeypatch, 0, {"features_on": "device"})[0], HostRows)


def test_features_that_do_not_fit_stay_and_the_log_says_why(monkeypatch):
    monkeypatch.setattr("distgnn.forecast.memory.SLICE_BYTES", 1 << 24)
    (rows,) = placed(monkeypatch, 1000)
    assert isinstance(rows, HostRows)
    assert describe_streamed(rows) == (
        "features: in host memory, as training would need about 0 MiB of the device with them "
        "there, 32 MiB without, and 0 MiB may be used; 0.0 MiB stream through 0.0 MiB of the "
        "device whenever they are multiplied, and nothing is replayed as a CUDA graph"
    )
    (rows,) = placed(monkeypatch, 1 << 30, {"features_on": "host"})
    assert rows.why == "as --features-on host says"


def test_features_stay_on_all_ranks_or_on_none(monkeypatch):
    first, second = placed(monkeypatch, 0, num_parts=2, rooms=[("a", 1 << 30), ("b", 1000)])
    assert isinstance(first, HostRows)
    assert isinstance(second, HostRows)
    assert sorted((first.why[:30], second.why[:30])) == [
        "as a device of another rank ha",
        "as training would need about 0",
    ]


def test_ranks_that_share_a_device_share_its_memory(monkeypatch):
    monkeypatch.setattr("distgnn.forecast.memory.SLICE_BYTES", 1 << 24)
    monkeypatch.setattr(room, "device_bytes", lambda *_, features_on: SHARES[features_on])
    left = int(60 * MIB / 0.9) + 1
    for rows in placed(monkeypatch, left, num_parts=2):
        assert isinstance(rows, HostRows)
        assert rows.why == (
            "as training would need about 80 MiB of the device for the 2 ranks that share it with "
            "them there, 20 MiB without, and 60 MiB may be used"
        )
    apart = placed(monkeypatch, 0, num_parts=2, rooms=[("a", left), ("b", left)])
    assert not any(isinstance(rows, HostRows) for rows in apart)
    enough = placed(monkeypatch, int(80 * MIB / 0.9) + 1, num_parts=2)
    assert not any(isinstance(rows, HostRows) for rows in enough)


IMPOSSIBLE = {
    "sparse": ("sparse-features", {}, "the graph has sparse ones"),
    "none": ("featureless", {"model": "rgcn"}, "the graph has none"),
    "labels": ("random", {"labels_as_input": 0.5}, "--labels-as-input 0.5 changes them in every"),
    "gin": (
        "edge-features",
        {"model": "gin", "edge_features": "use"},
        "the first layer of --model gin adds features of edges to them",
    ),
    "max-off": (
        "random",
        {"aggregator": "max", "static_input": False},
        "--aggregator max takes maxima of them in every epoch, as static input is off",
    ),
    "max-dropped": (
        "random",
        {"aggregator": "max", "input_dropout": 0.5},
        "--aggregator max takes maxima of them in every epoch, as the input is dropped out",
    ),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_features_that_cannot_be_streamed_are_on_the_device_or_refused(name, monkeypatch):
    kind, options, reason = IMPOSSIBLE[name]
    (rows,) = placed(monkeypatch, 0, options, kind=kind)
    assert not isinstance(rows, HostRows)
    with pytest.raises(InputError) as caught:
        placed(monkeypatch, 0, {**options, "features_on": "host"}, kind=kind)
    text = str(caught.value)
    assert text.startswith("--features-on host streams dense features that stay as they are, but ")
    assert reason in text
    assert text.endswith("; use --features-on device or auto")


def test_host_memory_that_cannot_be_pinned_is_refused(monkeypatch):
    def pinned(*size, **options):
        raise RuntimeError("CUDA error: out of memory\nmore about it")

    monkeypatch.setattr(host_rows, "_slices", pinned)
    with pytest.raises(InputError) as caught:
        placed(monkeypatch, 0, {"features_on": "host"})
    assert str(caught.value) == (
        "0 MiB of host memory could not be pinned for features (CUDA error: out of memory); use "
        "more parts on more machines, --features-dtype bf16, or --features-on device"
    )


def test_the_processor_streams_nothing():
    for features_on in ("auto", "device"):
        check_features_on(features_on, "cpu")
    check_features_on("host", "cuda")
    with pytest.raises(InputError) as caught:
        check_features_on("host", "cpu")
    assert str(caught.value) == (
        "--features-on host streams features to a CUDA device, but --device is cpu, which reads "
        "them where they are; drop it or add --device cuda"
    )
    # A run that was trained on a device is evaluated on the processor as any other.
    graph = make_graph("random", num_vertices=40)
    parts = cut(graph, 1)
    trainer = trainer_of(graph, parts, SingleGroup(), features_on="host")
    assert isinstance(trainer.inputs.features, torch.Tensor)


def test_another_place_is_refused():
    with pytest.raises(InputError) as caught:
        make_config(features_on="disk")
    assert str(caught.value) == "--features-on must be one of auto, device, host, got 'disk'"


def test_a_device_is_said_to_need_less_without_the_features():
    ends = replace(ends_of(make_graph("random", num_vertices=40)), num_features=256)
    part = SimpleNamespace(num_roots=10**6, num_leaves=0, num_edges=10**6)
    for options, copies in (({}, 2), ({"model": "gat"}, 1), ({"features_dtype": "bf16"}, 1)):
        config = make_config(**options)
        there, without = (
            device_bytes(config, ends, part, features_on=where) for where in ("device", "host")
        )
        # What is there instead are two slices, and sixteen columns at a time.
        assert 0.7 < (there - without) / (copies * 4 * 256 * 10**6) < 1, options


def test_the_aggregate_of_all_clones_counts_where_each_part_is_trained_alone():
    graph = make_graph("random", num_vertices=40)
    parts, width = cut(graph, 2), graph.features.shape[1]

    def on_rank(group):
        # All layers run on all rows of the part.
        trainer = trainer_of(graph, parts, group, algorithm="0c", receptive_field=False)
        whole = replace(trainer.graphs, is_isolated=False)
        added = [predict_added_bytes(trainer.model, each) for each in (trainer.graphs, whole)]
        part = parts[group.rank]
        return added[0] - added[1] == (part.num_roots + part.num_leaves) * width * 4

    assert run_ranks(2, on_rank) == [True, True]
