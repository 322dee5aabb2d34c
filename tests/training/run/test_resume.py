"""A resumed run has the bits of the straight one, whatever was under way when it ended."""

from __future__ import annotations

import pytest
from graphs import CUTS, cut, make_graph
from training import check_same_values, ends_of, make_config, run

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.optim.average import NoAverage
from distgnn.training.loop.model import WholeLoss, build_model, optimizer_of
from distgnn.training.loop.trainer import Trainer
from distgnn.training.run.beginning import resume
from distgnn.training.run.checkpoint import pack_state, unpack_state
from distgnn.training.run.directory import RunDirectory

ALGORITHMS = {
    "cd-0": {"algorithm": "cd-0"},
    "cd-3": {"algorithm": "cd-3"},
    "cd-3-without-cache": {"algorithm": "cd-3", "delay_cache": False},
    "cd-3-warmed-up": {"algorithm": "cd-3", "warm_up_epochs": 5, "gradient_cache": False},
    "pipeline": {"algorithm": "cd-1", "smoothing": 0.5, "gradient_smoothing": 0.25},
    "0c": {"algorithm": "0c", "reweight_loss": True},
    "adaptive": {"halo": "adapt(2|4|8,every=3,bits=4)", "hidden": 20},
}
NUM_EPOCHS = 12
STOP = 7


def shown(records):
    """The part of the records that does not measure time, memory or age."""
    names = ("epoch", "loss", "train_metric", "val_metric", "test_metric", "halo_bytes_sent")
    return [{name: record[name] for name in names} for record in records]


def names_in(folder):
    return sorted(item.name for item in folder.iterdir())


def check_same_run(got, expected):
    for one, other in zip(got, expected, strict=True):
        assert shown(one.records) == shown(other.records)
        assert one.trainer.best == other.trainer.best
        for name in ("model", "optimizer"):
            left, right = (getattr(t.trainer, name).state_dict() for t in (one, other))
            check_same_values(left, right)
        check_same_values(one.trainer.best_state, other.trainer.best_state)


COMBINATIONS = [(name, "adam") for name in ALGORITHMS] + [("cd-3", "adamw"), ("cd-3", "sgd")]


@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize(("algorithm", "optimizer"), COMBINATIONS)
def test_a_resumed_run_has_the_bits_of_the_straight_one(algorithm, num_ranks, optimizer, tmp_path):
    graph = make_graph("random")
    parts = cut(graph, num_ranks)
    options = {
        **ALGORITHMS[algorithm],
        "optimizer": optimizer,
        "norm": "batch",
        "dropout": 0.4,
        "input_dropout": 0.2,
    }
    config = make_config(epochs=NUM_EPOCHS, **options)
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "resumed", graph, parts, make_config(epochs=STOP, **options))
    resumed = run(tmp_path / "resumed", graph, parts, config, resume=True)
    check_same_run(resumed, straight)
    files = [RunDirectory(tmp_path / name).model_path for name in ("straight", "resumed")]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_a_killed_run_goes_on_from_its_last_checkpoint(num_ranks, tmp_path):
    graph = make_graph("sparse-features")
    parts = cut(graph, num_ranks)
    config = make_config(
        algorithm="cd-2", epochs=NUM_EPOCHS, dropout=0.5, eval_every=4, checkpoint_every=3
    )
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "killed", graph, parts, config, stop_at=STOP)
    resumed = run(tmp_path / "killed", graph, parts, config, resume=True)
    check_same_run(resumed, straight)
    lines = RunDirectory(tmp_path / "killed").read_metrics()
    assert [record["epoch"] for record in lines] == list(range(NUM_EPOCHS))


@pytest.mark.parametrize("stop", [2, 3, 4, 6])
def test_a_run_goes_on_inside_its_warm_up_and_just_after(stop, tmp_path):
    graph = make_graph("random")
    parts = cut(graph, 3)
    config = make_config(
        algorithm="cd-4", bins=2, warm_up_epochs=4, epochs=NUM_EPOCHS, checkpoint_every=1
    )
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "killed", graph, parts, config, stop_at=stop)
    check_same_run(run(tmp_path / "killed", graph, parts, config, resume=True), straight)
    ages = [record["max_staleness"] for record in straight[0].records]
    assert ages[:4] == [0] * 4
    assert ages[-1] == 5


@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("stop_on", ["metric", "loss"])
def test_patience_is_counted_across_a_resume(stop_on, num_ranks, tmp_path):
    graph = make_graph("random")
    parts = cut(graph, num_ranks)
    # A vanishing step never gets better than the first epochs did.
    config = make_config(
        epochs=30,
        patience=4,
        stop_on=stop_on,
        optimizer="sgd",
        lr=1e-30,
        checkpoint_every=3,
        weight_decay=0.0,
    )
    straight = run(tmp_path / "straight", graph, parts, config)
    assert len(straight[0].records) == 5
    run(tmp_path / "killed", graph, parts, config, stop_at=3)
    resumed = run(tmp_path / "killed", graph, parts, config, resume=True)
    check_same_run(resumed, straight)


def test_a_run_resumed_before_its_first_checkpoint_starts_anew(tmp_path):
    graph = make_graph("random")
    parts = cut(graph, 2)
    straight = run(tmp_path / "straight", graph, parts, make_config())
    run(tmp_path / "killed", graph, parts, make_config(), stop_at=1)
    check_same_run(run(tmp_path / "killed", graph, parts, make_config(), resume=True), straight)


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_a_synchronous_run_goes_on_with_another_number_of_ranks(num_ranks, tmp_path):
    graph = make_graph("random")
    config = make_config(epochs=NUM_EPOCHS, norm="batch", dropout=0.3)
    straight = run(tmp_path / "straight", graph, cut(graph, 3), config)
    run(tmp_path / "resumed", graph, cut(graph, 3), config, stop_at=9)
    resumed = run(tmp_path / "resumed", graph, cut(graph, num_ranks), config, resume=True)
    for one, other in zip(resumed[0].records, straight[0].records, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)


def resumed_on(folder, parts, config):
    """Return what each rank finds in the newest checkpoint, and the exchange that continues."""

    def on_rank(group):
        trainer = Trainer(config, ends_of(make_graph()), parts[group.rank], group)
        found = trainer.resume(trainer.checkpoints(folder / "checkpoints"))
        return found, trainer

    return run_ranks(len(parts), on_rank)


@pytest.mark.parametrize(("num_ranks", "seed"), [(1, 0), (2, 0), (3, 1), (4, 0)])
def test_on_another_partition_weights_go_on_and_delays_start_cold(num_ranks, seed, tmp_path):
    graph = make_graph()
    config = make_config(algorithm="cd-2", epochs=6)
    before = run(tmp_path, graph, cut(graph, 3), config)
    same = resumed_on(tmp_path, cut(graph, 3), config)
    other = resumed_on(tmp_path, cut(graph, num_ranks, seed=seed), config)
    assert [found.why_cold for found, _ in same] == [""] * 3
    assert all("another partition" in found.why_cold for found, _ in other)
    assert same[2][0].rows
    for found, trainer in other:
        assert not found.rows
        assert trainer.num_epochs == 6
        assert trainer.graph.exchange.state()["epoch"].tolist() == [0, 0]
        check_same_values(trainer.model.state_dict(), before[0].trainer.model.state_dict())
    longer = make_config(algorithm="cd-2", epochs=9)
    records = run(tmp_path, graph, cut(graph, num_ranks, seed=seed), longer, resume=True)[0].records
    assert [record["epoch"] for record in records] == list(range(9))


def test_parts_alone_go_on_with_another_cut_every_few_epochs(tmp_path):
    graph, every = make_graph(), 4
    cuts = [cut(graph, 3, seed=seed, how=how) for seed, how in enumerate(CUTS)]
    for number, parts in enumerate(cuts):
        config = make_config(preset="grappa", epochs=every * (number + 1), dropout=0.3)
        (before, *_) = run(tmp_path, graph, parts, config, resume=number > 0)
        found, trainer = resumed_on(tmp_path, cuts[number - 1], config)[0]
        assert found.why_cold == ""
        assert trainer.num_epochs == every * (number + 1)
        for part in ("model", "optimizer"):
            left, right = (getattr(each, part).state_dict() for each in (trainer, before.trainer))
            check_same_values(left, right)
    assert [record["epoch"] for record in before.records] == list(range(every * len(cuts)))
    assert all(record["halo_bytes_sent"] == 0 for record in before.records)


def test_another_model_is_refused():
    group = SingleGroup()
    graph = make_graph("random")
    trainers = [
        Trainer(make_config(hidden=hidden), ends_of(graph), cut(graph, 1)[0], group)
        for hidden in (4, 5)
    ]
    state = pack_state(trainers[0].model, trainers[0].optimizer, NoAverage(), {})
    with pytest.raises(InputError, match=r"the checkpoint belongs to another model: .*size mism"):
        unpack_state(state, trainers[1].model, trainers[1].optimizer, NoAverage())


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "kfac"])
def test_packing_loses_nothing(optimizer):
    graph = make_graph("random")
    config = make_config(optimizer=optimizer, norm="batch")
    trainer = Trainer(config, ends_of(graph), cut(graph, 1)[0], SingleGroup())
    list(trainer.epochs())
    state = pack_state(trainer.model, trainer.optimizer, trainer.average, trainer.best_state)
    model = build_model(config, ends_of(graph))
    whole = WholeLoss(SingleGroup(), trainer.objective, is_input_fixed=True)
    fresh = optimizer_of(config, model, whole)
    best = unpack_state(state, model, fresh, NoAverage())
    check_same_values(best, trainer.best_state)
    check_same_values(model.state_dict(), trainer.model.state_dict())
    check_same_values(fresh.state_dict(), trainer.optimizer.state_dict())


def test_a_damaged_run_goes_on_from_the_older_checkpoint_and_drops_the_damaged_one(tmp_path):
    graph = make_graph("random")
    parts = cut(graph, 2)
    config = make_config(algorithm="cd-2", epochs=9, checkpoint_every=2)
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "killed", graph, parts, config, stop_at=6)
    folder = tmp_path / "killed" / "checkpoints"
    assert names_in(folder) == ["epoch-000004", "epoch-000006"]
    (folder / "epoch-000006" / "state.safetensors").write_bytes(b"")
    run(tmp_path / "killed", graph, parts, make_config(algorithm="cd-2", epochs=5), resume=True)
    assert names_in(folder) == ["epoch-000004", "epoch-000005"]
    check_same_run(run(tmp_path / "killed", graph, parts, config, resume=True), straight)


def test_records_that_cannot_be_rewritten_are_an_error_on_all_ranks(tmp_path, monkeypatch):
    """In a study one rank would else go on with the next trial, and the others wait."""
    graph = make_graph("random")
    parts = cut(graph, 2)
    config = make_config(epochs=4, checkpoint_every=1)
    run(tmp_path, graph, parts, config, stop_at=2)
    raised = []

    def keep(self, num_epochs):
        raise InputError("no space left")

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        with pytest.raises(InputError, match=r"^(rank 0: )?no space left$"):
            resume(trainer, RunDirectory(tmp_path), lambda line: None)
        raised.append(group.rank)

    monkeypatch.setattr(RunDirectory, "keep_metrics", keep)
    run_ranks(2, on_rank)
    assert sorted(raised) == [0, 1]
