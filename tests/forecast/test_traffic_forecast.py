"""Bytes that inspect predicts for an epoch, which training counts exactly."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from graphs import KINDS, TYPED_KINDS, cut, make_graph
from training import MODEL_FIELDS, TYPED_MODELS, ends_of, make_config

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError, load
from distgnn.exchange.codec import EXACT, CodecSpec
from distgnn.forecast.memory import (
    device_bytes,
    memory_of_ranks,
    moment_bytes,
    predict_added_bytes,
)
from distgnn.forecast.traffic import forecast, planned_bytes
from distgnn.partition import METHODS, assign
from distgnn.partition.directory.store import read_manifest, read_part, write
from distgnn.partition.quality import measure
from distgnn.training.loop.trainer import Trainer
from distgnn.weights.rule import SUM

MODELS = {
    "sage": {},
    "sage-gcn": {"aggregator": "gcn", "hidden": 9},
    "sage-max": {"aggregator": "max", "layers": 3},
    "sage-wide": {"hidden": 9, "layers": 3, "dropout": 0.3},
    "sage-input-dropout": {"hidden": 5, "input_dropout": 0.3},
    "sage-residual": {"norm": "layer", "residual": True, "residual_map": True, "layers": 3},
    "sage-jumping": {"jumping": "cat", "layers": 3},
    "gcn": {"model": "gcn", "hidden": 5},
    "gcn-batch": {"model": "gcn", "norm": "batch", "hidden": 9},
    "one-layer": {"model": "gcn", "layers": 1},
    "sage-pool": {"aggregator": "pool", "layers": 3},
    "gcn-elu": {"model": "gcn", "activation": "elu", "hidden": 9, "layers": 3},
    "gin": {"model": "gin", "hidden": 9, "layers": 3},
    "gin-learned": {"model": "gin", "learn_eps": True, "eps": 0.5, "input_dropout": 0.3},
    "sgc": {"model": "sgc", "layers": 1},
    "sgc-near": {"model": "sgc", "hops": 1, "hidden": 9},
    "sgc-deep": {"model": "sgc", "hops": 3, "hidden": 9},
    "appnp": {"model": "appnp", "hops": 3, "alpha": 0.3, "degrees": "out-in"},
    "gatv2": {"model": "gatv2", "heads": 3, "hidden": 2, "attention_dropout": 0.5},
    "gat": {"model": "gat", "heads": 3, "hidden": 2},
    "gat-residual": {
        "model": "gat",
        "heads": 2,
        "last_heads": 1,
        "hidden": 3,
        "layers": 3,
        "residual": True,
    },
}
SLOW = pytest.mark.slow
SWITCHES = [(True, True), (True, False), (False, True), (False, False)]


def sparse_field(kind="random"):
    """A graph in which few vertices train, so that layers differ in their rows."""
    graph = make_graph(kind, num_vertices=90, seed=3)
    train = graph.train_mask.copy()
    train[:, 12:] = False
    return dataclasses.replace(graph, train_mask=train)


def partition(folder, graph, method, num_parts):
    assignment = assign(method, graph, num_parts, seed=1)
    quality = measure(graph, assignment)
    write(folder, graph, assignment, method=method, options={}, seed=1, quality=quality)
    return folder


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """Partition directories by graph, method and number of parts, made once."""
    made = {}

    def directory(kind, method, num_parts):
        key = kind, method, num_parts
        if key not in made:
            folder = tmp_path_factory.mktemp("parts") / "p"
            made[key] = partition(folder, sparse_field(kind), method, num_parts)
        return made[key]

    return directory


def trained(directory, config):
    """The records of a run, and what the ranks together said that an epoch would send."""
    manifest = read_manifest(directory)

    def on_rank(group):
        part = read_part(directory, group.rank)
        trainer = Trainer(config, ends_of(manifest), part, group)
        own = planned_bytes(config, trainer.model, trainer.graphs)
        return list(trainer.epochs()), own

    results = run_ranks(manifest.num_parts, on_rank)
    return results[0][0], sum(own for _, own in results)


def check(directory, config):
    manifest = read_manifest(directory)
    found = forecast(directory, manifest, config)
    records, planned = trained(directory, config)
    counted = [record["halo_bytes_sent"] for record in records]
    assert counted == [found.bytes_in_epoch(epoch) for epoch in range(len(records))]
    for record in records:
        is_evaluated = record["val_metric"] is not None
        weight_bytes = found.weights.bytes_in_epoch(
            manifest.num_parts, record["epoch"], is_evaluated=is_evaluated
        )
        assert record["weight_bytes_sent"] == weight_bytes
        assert record["eval_halo_bytes_sent"] == found.evaluation_bytes * is_evaluated
    rule = config.halo_rule
    if not rule.warm_up_epochs and not rule.forward.refresh + rule.backward.refresh:
        assert planned == pytest.approx(found.bytes_per_epoch)
    return found


@pytest.mark.parametrize("num_parts", [pytest.param(2, marks=SLOW), 3, pytest.param(4, marks=SLOW)])
@pytest.mark.parametrize("method", METHODS)
def test_any_partitioner_with_the_defaults_of_training(method, num_parts, directories):
    found = check(directories("random", method, num_parts), make_config(epochs=2, dropout=0.5))
    assert found.bytes_per_epoch > 0


@pytest.mark.parametrize(("static_input", "receptive_field"), SWITCHES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["random", pytest.param("sparse-features", marks=SLOW)])
def test_any_model_with_each_saving_on_and_off(
    kind, model, static_input, receptive_field, directories
):
    config = make_config(
        **{"epochs": 3, "eval_every": 2, **MODELS[model]},
        static_input=static_input,
        receptive_field=receptive_field,
    )
    check(directories(kind, "libra", 3), config)


@pytest.mark.parametrize(
    ("kind", "features", "activations"),
    [
        ("random", "bf16", "fp32"),
        ("random", "fp32", "bf16"),
        ("random", "bf16", "bf16"),
        ("sparse-features", "fp32", "bf16"),
    ],
)
@pytest.mark.parametrize("model", MODELS)
def test_rows_that_are_stored_in_fewer_bytes_travel_so(
    model, kind, features, activations, directories
):
    fields = {"epochs": 2, "static_input": False, **MODELS[model]}
    config = make_config(**fields, features_dtype=features, activations_dtype=activations)
    check(directories(kind, "libra", 3), config)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("model", ["sage", "sage-max", "gat", "gatv2", "gat-residual"])
def test_messages_are_counted_as_they_are_sent(model, dtype, directories, monkeypatch):
    directory, sent = directories("random", "libra", 3), []
    config = make_config(**MODELS[model], static_input=False, activations_dtype=dtype)
    manifest = read_manifest(directory)

    def on_rank(group):
        transfer = group.transfer

        def count(incoming, outgoing, tag):
            sent.extend(rows for rows, _ in outgoing if len(rows))
            return transfer(incoming, outgoing, tag)

        trainer = Trainer(config, ends_of(manifest), read_part(directory, group.rank), group)
        monkeypatch.setattr(group, "transfer", count)
        trainer.train_epoch()

    run_ranks(3, on_rank)
    assert len(sent) == forecast(directory, manifest, config).messages_between.sum()


HALOS = ("bf16", "int8(round=near)", "int4", "int2", "fwd:int8+bwd:int1", "bwd:int4")


@pytest.mark.parametrize(
    ("halo", "activations"),
    [
        ("fwd:int8+bwd:int4", "fp32"),
        *(pytest.param(halo, "fp32", marks=SLOW) for halo in HALOS),
        *(pytest.param(halo, "bf16", marks=SLOW) for halo in HALOS),
    ],
)
@pytest.mark.parametrize("model", MODELS)
def test_coded_rows_are_counted_as_they_are_sent(model, halo, activations, directories):
    fields = {"layers": 3, **MODELS[model], "hidden": 20, "epochs": 2}
    fields["activations_dtype"] = activations
    directory = directories("random", "libra", 3)
    coded = check(directory, make_config(**fields, halo=halo))
    manifest = read_manifest(directory)
    exact = forecast(directory, manifest, make_config(**fields))
    # These sum nothing but features and scores of classes, which are too narrow to code.
    is_narrow = model in ("one-layer", "sgc", "appnp")
    assert coded.bytes_per_epoch <= exact.bytes_per_epoch
    if halo != activations:  # else rows are bfloat16 already
        assert (coded.bytes_per_epoch < exact.bytes_per_epoch) != is_narrow
    assert coded.evaluation_bytes == exact.evaluation_bytes


@pytest.mark.parametrize("model", TYPED_MODELS)
def test_coded_rows_of_typed_models(model, directories):
    fields = {**TYPED_MODELS[model], "hidden": 20, "epochs": 2}
    found = check(directories("featureless", "libra", 3), make_config(**fields, halo="int4"))
    assert found.bytes_per_epoch > 0


def test_the_memory_of_coded_rows_is_that_of_codes_and_of_the_rows_that_are_read(directories):
    directory = directories("random", "libra", 3)
    manifest = read_manifest(directory)
    memory = {
        halo: memory_of_ranks(
            manifest, forecast(directory, manifest, make_config(hidden=32, layers=3, halo=halo))
        )
        for halo in ("exact", "int8", "int2")
    }
    for number, part in enumerate(manifest.parts):
        saved = memory["exact"][number] - memory["int8"][number]
        # The first layer's input is summed once, the others sum 32 columns.
        assert saved == part.num_leaves * (2 * 32 * 4 - (32 * 4 + 2 * (32 + 4)))
        assert memory["int2"][number] < memory["int8"][number]


def test_an_evaluation_in_a_code_is_counted(directories):
    directory = directories("random", "libra", 3)
    manifest = read_manifest(directory)
    found = forecast(directory, manifest, make_config(hidden=32, layers=3))
    assert found.evaluation_bytes_in(EXACT) == found.evaluation_bytes
    legs = [leg for layer in found.evaluation for leg in layer.forward]
    coded = sum(
        int(found.evaluation_rows.sent_rows(leg).sum()) * (36 if leg.columns == 32 else 4 * 3)
        for leg in legs
    )
    assert {leg.columns for leg in legs} == {32, 3}
    assert found.evaluation_bytes_in(CodecSpec(8)) == coded


@pytest.mark.parametrize("model", [name for name in MODELS if name != "gcn-batch"])
@pytest.mark.parametrize("kind", ["random", "sparse-features"])
def test_layers_that_are_computed_again_send_again(kind, model, directories):
    config = make_config(**{"epochs": 2, **MODELS[model]})
    directory = directories(kind, "random", 3)
    again = check(directory, dataclasses.replace(config, recompute=True))
    assert again.bytes_per_epoch >= check(directory, config).bytes_per_epoch


@pytest.mark.parametrize("kind", TYPED_KINDS)
@pytest.mark.parametrize("model", TYPED_MODELS)
def test_typed_models(model, kind, directories):
    config = make_config(**{"epochs": 2, **TYPED_MODELS[model]})
    found = check(directories(kind, "libra", 3), config)
    assert found.bytes_per_epoch > 0
    if config.model.norm != "batch":
        check(directories(kind, "libra", 3), dataclasses.replace(config, recompute=True))


@pytest.mark.parametrize("algorithm", ["cd-0", "cd-2", "0c"])
@pytest.mark.parametrize(
    "options", [{}, {"layers": 1}, {"layers": 3}, {"norm": "batch"}, {"receptive_field": False}]
)
def test_learned_rows_that_are_summed(options, algorithm, directories):
    config = make_config(**{"model": "rgcn", "epochs": 3, **options}, algorithm=algorithm)
    check(directories("featureless", "libra", 3), config)


def test_labels_as_input_sum_a_weight(directories):
    config = make_config(epochs=2, labels_as_input=0.5)
    check(directories("random", "libra", 3), config)


@pytest.mark.parametrize("weights", ["bf16", "int8", "int4(round=near)", "int2", "int1"])
@pytest.mark.parametrize("options", [{"hidden": 40, "layers": 3}, {"model": "rgcn", "hidden": 32}])
def test_gradients_that_are_coded(options, weights, directories):
    config = make_config(**options, norm="batch", epochs=2, weights=weights)
    kind = "featureless" if "model" in options else "random"
    found = check(directories(kind, "libra", 3), config)
    whole = forecast(
        directories(kind, "libra", 3),
        read_manifest(directories(kind, "libra", 3)),
        dataclasses.replace(config, weights="sum"),
    )
    assert found.weight_bytes < 0.8 * whole.weight_bytes
    assert found.weight_bytes == sum(
        found.weights.bytes_of(rank, 3, is_evaluated=True) for rank in range(3)
    )
    # Codes take memory, and none where ranks send none.
    assert found.weights.working_bytes(3) > whole.weights.working_bytes(3) == 0
    assert found.weights.working_bytes(1) == 0


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("options", [{"norm": "batch"}, {"model": "rgcn"}])
@pytest.mark.parametrize(
    "weights",
    [
        "every(3)",
        "every(3)+own-moments",
        "every(3)+int8",
        "every(3)+int4+own-moments",
        "every(3)+pairs",
        "every(3)+groups(3)",
        "every(3)+lag(2)+elastic(0.5)",
    ],
)
def test_models_that_are_merged(weights, options, optimizer, directories):
    words = {"epochs": 7, "eval_every": 2, "weights": weights, "optimizer": optimizer}
    kind = "featureless" if "model" in options else "random"
    found = check(directories(kind, "libra", 3), make_config(**options, **words))
    merging = [found.weights.bytes_in_epoch(3, epoch) for epoch in range(3)]
    assert merging[0] == merging[1] < merging[2]
    assert found.weight_bytes == pytest.approx(sum(merging) / 3)


@pytest.mark.parametrize(
    "weights", ["machines(2)", "int8+machines(2)", "qadam(2)+int4+machines(2)"]
)
@pytest.mark.parametrize("options", [{"norm": "batch"}, {"model": "rgcn"}])
def test_gradients_that_are_added_up_on_machines_first(weights, options, directories):
    words = {"epochs": 4, "hidden": 40, "layers": 3, "weights": weights}
    kind = "featureless" if "model" in options else "random"
    found = check(directories(kind, "libra", 3), make_config(**options, **words))
    # The sum takes as long as a ring of all ranks in which as many bytes travel.
    summed = found.weights._replace(statistics=())
    told = summed.bytes_in_epoch(3, 3)
    assert summed.ring_bytes(3) == pytest.approx(told / 4)
    assert found.weights.working_bytes(3) > found.weights._replace(rule=SUM).working_bytes(3)


def test_moments_that_are_summed_after_a_warm_up(directories):
    config = make_config(epochs=4, hidden=40, layers=3, weights="qadam(2)+int8")
    found = check(directories("random", "libra", 3), config)
    plain, coded = (found.weights.bytes_in_epoch(3, epoch) for epoch in (1, 2))
    assert found.weight_bytes == coded < 0.8 * plain


@pytest.mark.parametrize("code", ["", "+int8"])
def test_models_that_neighbors_are_told(code, directories):
    config = make_config(epochs=5, eval_every=3, hidden=40, weights=f"every(2)+ring{code}")
    found = check(directories("random", "libra", 4), config)
    merged = found.weights.bytes_in_epoch(4, 1)
    assert found.weight_bytes == pytest.approx(merged / 2)
    # A ring of sums sends 2 (P - 1) / P of what is summed from each of P ranks.
    assert 2 * 3 * found.weights.ring_bytes(4) == pytest.approx(found.weight_bytes)
    assert found.weights.working_bytes(4) > found.weights.working_bytes(1) == 0


@pytest.mark.parametrize("order", ["tournament", "grid"])
def test_models_that_are_merged_in_turns(order, directories):
    words = f"every(1)+groups(4,order={order})"
    config = make_config(epochs=5, eval_every=2, weights=words)
    found = check(directories("random", "libra", 6), config)
    rounds = [found.weights.bytes_in_epoch(6, epoch) for epoch in range(6)]
    assert found.weight_bytes == pytest.approx(sum(rounds) / 6)
    # Rows of a grid have four and two ranks, its columns two each and one; halves have two.
    assert (rounds[0] > rounds[1]) == (order == "grid")


@pytest.mark.parametrize("whom", ["", "+pairs"])
def test_models_that_are_merged_by_votes_send_at_most_so_much(whom, directories):
    directory = directories("random", "libra", 3)
    config = make_config(epochs=20, eval_every=3, weights=f"changed-gradient(0.03){whom}")
    found = forecast(directory, read_manifest(directory), config)
    records, _ = trained(directory, config)
    votes = 3 * 2 * 8
    for record in records:
        most = found.weights.bytes_in_epoch(
            3, record["epoch"], is_evaluated=record["val_metric"] is not None
        )
        assert votes <= record["weight_bytes_sent"] <= most
        if record["weight_syncs"]:
            assert record["weight_bytes_sent"] == most
        elif record["val_metric"] is None:
            assert record["weight_bytes_sent"] == votes
    assert 0 < sum(record["weight_syncs"] for record in records) < 20


def test_values_that_matter_are_at_most_all_of_them(directories):
    directory = directories("random", "libra", 3)
    plain = {"epochs": 5, "eval_every": 3}
    found, none = (
        forecast(directory, read_manifest(directory), make_config(**plain, weights=words))
        for words in ("changed(0.5)", "changed(inf)")
    )
    records, _ = trained(directory, make_config(**plain, weights="changed(0.5)"))
    for record in records:
        is_evaluated = record["val_metric"] is not None
        most = found.weights.bytes_in_epoch(3, record["epoch"], is_evaluated=is_evaluated)
        assert 0 < record["weight_bytes_sent"] < most
    assert none.weights.bytes_in_epoch(3) == none.weights.ring_bytes(3) == 0
    # A ring sends 2 (P - 1) / P of what is summed from each of P ranks.
    assert 2 * (3 - 1) * found.weights.ring_bytes(3) == found.weights.bytes_in_epoch(3)
    assert found.weights.working_bytes(3) > none.weights.working_bytes(3) > 0


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("kind", ["typed", "featureless"])
def test_the_memory_of_a_typed_model_holds_its_weights(kind, num_layers, directories):
    directory = directories(kind, "libra", 3)
    manifest = read_manifest(directory)
    config = make_config(model="rgcn", hidden=32, layers=num_layers)

    def on_rank(group):
        part = read_part(directory, group.rank)
        trainer = Trainer(config, ends_of(manifest), part, group)
        return sum(weight.nbytes for weight in trainer.model.parameters()), part.num_edges

    memory = memory_of_ranks(manifest, forecast(directory, manifest, config))
    for rank, (weights, num_edges) in enumerate(run_ranks(3, on_rank)):
        # Gradients and both moments, too; edges by relation.
        least = 4 * weights + 40 * num_edges
        assert least < memory[rank] < 2 * least + 20_000


@pytest.mark.parametrize("kind", KINDS)
def test_any_graph(kind, directories):
    for model in ("sage", "gat"):
        check(directories(kind, "hdrf", 4), make_config(**{"epochs": 2, **MODELS[model]}))


@pytest.mark.parametrize("model", ["sage-wide", "sage-max", "gat", "gatv2", "appnp"])
@pytest.mark.parametrize("algorithm", ["cd-1", "cd-3"])
def test_delayed_rows_are_dealt_among_bins(algorithm, model, directories):
    config = make_config(**{"algorithm": algorithm, "epochs": 7, **MODELS[model]})
    found = check(directories("random", "libra", 4), config)
    of_all_bins = sum(found.bytes_in_epoch(epoch) for epoch in range(found.num_bins))
    assert of_all_bins == found.bytes_per_epoch * found.num_bins


@pytest.mark.parametrize("model", ["sage-wide", "gat"])
@pytest.mark.parametrize(
    "delays", [{"bins": 2, "delay": 4}, {"bins": 1, "delay": 1, "smoothing": 0.5}, {"delay": 0}]
)
@pytest.mark.parametrize("warm_up_epochs", [0, 3])
def test_bins_delay_and_warm_up_are_counted_apart(warm_up_epochs, delays, model, directories):
    if model == "gat":
        delays = {**delays, "smoothing": 0.0}
    fields = {"algorithm": "cd-3", "epochs": 7, "warm_up_epochs": warm_up_epochs, **delays}
    check(directories("random", "libra", 4), make_config(**fields, **MODELS[model]))


HALOS = [
    "bins(3)+delay(2)+int4",
    "warmup(2)+bins(3,deal=peers)+int8",
    "fwd:every(3)+bwd:never",
    "bins(4,deal=random)+drop",
    "refresh(3)+int1",
    "fwd:delay(1)+int8+bwd:bins(2)+bf16",
]


@pytest.mark.parametrize("model", ["sage-wide", "gat", "sage-max"])
@pytest.mark.parametrize("halo", HALOS)
def test_rules_of_halos_are_counted_epoch_by_epoch(halo, model, directories):
    config = make_config(**{**MODELS[model], "epochs": 7, "hidden": 20, "halo": halo})
    check(directories("random", "libra", 4), config)


def of_values(directory, halo, **fields):
    """Bytes of each epoch of a run, and those of the forecast."""
    config = make_config(**{**MODELS["sage-wide"], "epochs": 7, "hidden": 20, "halo": halo})
    manifest = read_manifest(directory)
    found = forecast(directory, manifest, config)
    records, _ = trained(directory, config)
    counted = [record["halo_bytes_sent"] for record in records]
    return counted, [found.bytes_in_epoch(epoch) for epoch in range(len(records))]


@pytest.mark.parametrize("halo", ["best(4)+int8", "warmup(1)+best(3)+bins(2)+delay(1)"])
def test_rows_that_are_ranked_are_counted(halo, directories):
    counted, predicted = of_values(directories("random", "libra", 4), halo)
    assert counted == predicted


@pytest.mark.parametrize(
    "halo", ["changed(0.5)", "changed(0.1,decay=sqrt)+int4+bins(2)", "gate(0.2)", "ec-graph"]
)
def test_where_values_decide_at_most_so_much_travels(halo, directories):
    counted, predicted = of_values(directories("random", "libra", 4), halo)
    assert all(sent <= most for sent, most in zip(counted, predicted, strict=True))
    assert sum(counted) < sum(predicted)


def test_four_methods_train_cora_to_the_same_losses_and_send_what_is_predicted(tmp_path):
    graph = load("cora")
    config = make_config(epochs=4, hidden=16, dropout=0.5, feature_norm="row")
    losses = []
    for method in ("metis", "libra", "edge-cut", "random"):
        directory = partition(tmp_path / method, graph, method, 2)
        found = forecast(directory, read_manifest(directory), config)
        records, _ = trained(directory, config)
        assert [r["halo_bytes_sent"] for r in records] == [found.bytes_per_epoch] * 4
        losses.append([record["loss"] for record in records])
    for one in losses[1:]:
        assert one == pytest.approx(losses[0], rel=1e-4)


def test_memory_is_predicted_for_each_rank(directories):
    def memory(kind="random", **options):
        directory = directories(kind, "libra", 3)
        manifest = read_manifest(directory)
        found = forecast(directory, manifest, make_config(**{"layers": 3, **options}))
        return np.array(memory_of_ranks(manifest, found))

    assert memory().shape == (3,)
    assert (memory(hidden=64) > memory(hidden=16)).all()
    assert (memory(recompute=True) < memory(hidden=8)).all()
    halved = memory(hidden=1) - memory(hidden=1, features_dtype="bf16")
    # Of the input and of its aggregate.
    parts = read_manifest(directories("random", "libra", 3)).parts
    assert halved.tolist() == [2 * part.num_roots * 6 * 2 for part in parts]
    assert (memory(kind="sparse-features", receptive_field=False) > 0).all()
    whole, restricted = memory(receptive_field=False, hidden=64), memory(hidden=64)
    assert (restricted <= whole).all()


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", ["random", "sparse-features", "multi-label"])
def test_rows_with_labels_are_wider(kind, dtype, directories):
    directory = directories(kind, "libra", 3)
    options = {"hidden": 12, "features_dtype": "fp32" if kind == "sparse-features" else dtype}
    given = make_config(labels_as_input=0.5, **options)
    found = check(directory, given)
    plain = check(directory, make_config(static_input=False, **options))
    if kind == "sparse-features":  # they are mapped before they travel
        assert [layer.width for layer in found.layers] == [12, 3]
        return
    assert [layer.width for layer in found.layers] == [6 + 3, 3]
    assert [layer.width for layer in plain.layers] == [6, 3]
    manifest = read_manifest(directory)
    memory = [memory_of_ranks(manifest, one) for one in (found, plain)]
    more_weights = moment_bytes(found.model, 2) - moment_bytes(plain.model, 2)
    for part, wide, narrow in zip(manifest.parts, *memory, strict=True):
        # Evaluation's and training's own, and what is kept of it for backward.
        added = (3 * (6 + 3) - 2 * 6) * part.num_roots * given.feature_bytes
        about = pytest.approx(added, abs=2 * 3 * 4 * part.num_leaves)
        assert wide - narrow - more_weights == about


def test_nothing_travels_in_0c_but_evaluation_is_exact(directories):
    found = check(directories("random", "metis", 3), make_config(algorithm="0c"))
    assert found.bytes_per_epoch == 0
    assert found.evaluation_bytes > 0


def test_layers_near_the_loss_move_fewer_rows(directories):
    directory = directories("random", "random", 4)
    found = check(directory, make_config(layers=3, static_input=False))
    moved = [int(rows.read.sum() + rows.write.sum()) for rows in found.rows]
    assert moved[0] > moved[1] > moved[2] > 0
    assert found.edge_fractions[0] > found.edge_fractions[1] > found.edge_fractions[2]
    assert [int(rows.edges.sum()) for rows in found.rows[1:]] == [
        round(fraction * 360) for fraction in found.edge_fractions[1:]
    ]


def test_one_part_sends_nothing(tmp_path):
    directory = partition(tmp_path / "p", sparse_field(), "metis", 1)
    found = check(directory, make_config())
    assert found.bytes_per_epoch == 0
    assert found.messages_between.sum() == 0


def test_a_split_that_is_not_there_is_refused(directories):
    directory = directories("random", "metis", 3)
    with pytest.raises(InputError, match="--split-index 4 is out of range"):
        forecast(directory, read_manifest(directory), make_config(split_index=4))


def test_widths_that_the_files_do_not_have_are_refused(directories):
    directory = directories("random", "metis", 3)
    manifest = dataclasses.replace(read_manifest(directory), num_features=2**30)
    with pytest.raises(InputError, match=r"features.npy' has shape .*, not .*1073741824"):
        forecast(directory, manifest, make_config())


def test_the_savings_are_those_that_training_notes(directories):
    directory = directories("random", "metis", 3)
    config = make_config(layers=3, algorithm="cd-2")
    manifest = read_manifest(directory)

    def on_rank(group):
        part = read_part(directory, group.rank)
        return Trainer(config, ends_of(manifest), part, group).graphs.savings

    assert run_ranks(3, on_rank)[0] == forecast(directory, manifest, config).savings


def test_every_field_of_a_model_is_covered():
    covered = {name for options in (*MODELS.values(), *TYPED_MODELS.values()) for name in options}
    # That of features of edges is resolved; models that read them have a test of their own. A
    # module that a user wrote ("own") says nothing of its traffic, so none is forecast for it.
    assert covered | {"hidden", "activations_dtype", "edge_features", "own"} == MODEL_FIELDS


@pytest.mark.parametrize(("name", "num_copies"), [("sgd", 1), ("adam", 2), ("kfac", 2)])
def test_memory_counts_the_moments_of_the_optimizer(name, num_copies, directories):
    """Those of L-BFGS are its memory: pairs of steps and changes, and its search."""
    directory = directories("random", "libra", 2)
    manifest, graph = read_manifest(directory), make_graph("random")
    part, ends = manifest.parts[0], ends_of(graph)
    sizes = []
    for optimizer in (name, "lbfgs"):
        config = make_config(optimizer=optimizer, weight_decay=0.0)
        found = forecast(directory, manifest, config)
        model, local = found.model, Trainer(config, ends, cut(graph, 1)[0], SingleGroup())
        sizes.append(
            [
                memory_of_ranks(manifest, found)[0] - found.weights.working_bytes(2),
                device_bytes(config, ends, part, features_on="device"),
                predict_added_bytes(local.model, local.graphs, optimizer=optimizer),
            ]
        )
    for _ in range(14):
        local.train_epoch()
    weight_bytes = 4 * sum(each.numel() for each in model.parameters())
    assert list(np.subtract(*reversed(sizes))) == [(26 - num_copies) * weight_bytes] * 3
    kept = sum(each.nbytes for each in local.optimizer.state_dict()[0].values())
    assert 20 * weight_bytes < kept < 26 * weight_bytes


@pytest.mark.parametrize(
    "halo",
    [
        *("every(5)+refresh(5)", "every(10)+refresh(20)", "every(2)+refresh(10)"),
        *("every(3,for=2)+refresh(4)", "bins(3,deal=peers)+refresh(2)+int8", "never+refresh(3)"),
    ],
)
def test_the_mean_of_deals_beside_refreshes_is_that_of_their_epochs(halo, directories):
    config = make_config(**{"halo": halo, "epochs": 2, **MODELS["sage-wide"]})
    directory = directories("random", "libra", 4)
    found = forecast(directory, read_manifest(directory), config)
    of_all = sum(found.bytes_in_epoch(epoch) for epoch in range(found.num_bins))
    assert of_all == pytest.approx(found.bytes_per_epoch * found.num_bins, rel=1e-9, abs=8)
