"""A run under any preset that is killed and resumed has the bits of the straight one."""

from __future__ import annotations

import re

import pytest
from graphs import cut, make_graph
from training import check_same_values, ends_of, make_config, run

from distgnn.comm.threads import run_ranks
from distgnn.exchange.rule import HaloRule
from distgnn.training.config.codecs import parse_halo, parse_weights
from distgnn.training.config.presets import PRESETS
from distgnn.training.loop.trainer import Trainer

# Those that keep something of each kind: the others have no more of any.
FAST = ("adaqp", "bns", "ec-graph", "grappa", "pipegcn", "sancus", "selsync-weights", "sylvie-a")
NUM_EPOCHS = 7
# Not where a refresh has just made memories alike.
STOP = 4
# Numbers of the presets, and those that are as much of a short run on three ranks.
SHORTER = {
    r"warmup\(20\)": "warmup(2)",
    r"refresh\(10\)": "refresh(3)",
    r"every\(10\)": "every(3)",
    r"every\(8": "every(3",
    r"travel\(20\)": "travel(4)",
    r"qadam\(20\)": "qadam(2)",
    r"every=50": "every=2",
    r"at\(20\)": "at(2)",
    r"at\(40\)": "at(3)",
    r"at\(60\)": "at(4)",
    r"most=10": "most=2",
    # Three ranks would be one group, whose models are equal.
    r"groups\(4\)": "groups(2)",
}


def config_of(name, num_epochs=NUM_EPOCHS):
    preset = PRESETS[name]
    halo, weights = preset.halo, preset.weights
    for long, short in SHORTER.items():
        halo, weights = (re.sub(long, short, words) for words in (halo, weights))
    return make_config(
        model="gcn",
        hidden=20,
        layers=3,
        static_input=False,
        epochs=num_epochs,
        checkpoint_every=1,
        halo=halo,
        weights=weights,
        **preset.settings,
    )


def shown(records):
    names = ("epoch", "loss", "val_metric", "test_metric", "halo_bytes_sent", "weight_bytes_sent")
    return [{name: record[name] for name in names} for record in records]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in PRESETS],
)
def test_a_killed_run_goes_on_with_the_same_bits(name, tmp_path):
    graph = make_graph("random")
    parts, config = cut(graph, 3), config_of(name)
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "killed", graph, parts, config, stop_at=STOP)
    resumed = run(tmp_path / "killed", graph, parts, config, resume=True)
    for one, other in zip(resumed, straight, strict=True):
        assert [record["epoch"] for record in one.records] == list(range(NUM_EPOCHS))
        assert shown(one.records) == shown(other.records)
        for part in ("model", "optimizer"):
            left, right = (getattr(each.trainer, part).state_dict() for each in (one, other))
            check_same_values(left, right)
    check_cold(name, graph, tmp_path / "killed")


def check_cold(name, graph, folder):
    """On another number of ranks all that ranks kept starts cold, and the checkpoint says so."""
    config, parts = config_of(name, NUM_EPOCHS + 2), cut(graph, 2)
    keeps = parse_halo(config.halo).keeps_state or parse_weights(config.weights).is_local

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        found = trainer.resume(trainer.checkpoints(folder / "checkpoints"))
        losses = [record["loss"] for record in trainer.epochs()]
        return found.why_cold, found.num_epochs, losses

    for why_cold, num_epochs, losses in run_ranks(2, on_rank):
        assert num_epochs == NUM_EPOCHS
        assert len(losses) == 2
        assert ("another partition" in why_cold) == keeps


def test_runs_are_short_versions_of_all_presets():
    """A number of epochs that no table shortens would hide what is kept."""
    for name in PRESETS:
        config = config_of(name)
        words = f"{config.halo} {config.weights}"
        named = r"(?:warmup|refresh|every|at|lag|travel|qadam)\(?=?([0-9]+)"
        numbers = map(int, re.findall(named, words))
        assert all(number < NUM_EPOCHS for number in numbers), words
        assert (config.halo_rule == HaloRule()) == (parse_halo(PRESETS[name].halo) == HaloRule())
