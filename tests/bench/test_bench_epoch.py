"""Whole epochs beside peers: the same graph, weights and losses."""

from __future__ import annotations

import json
import math

import pytest

from distgnn.bench import peers
from distgnn.bench.epoch import (
    PEERS,
    EpochRace,
    exact_losses,
    largest_difference,
    measure_epochs,
    peak_bytes,
    twin_graph,
)
from distgnn.cli import bench_verb, main
from distgnn.datasets import InputError

TINY = {
    "shape": "arxiv",
    "order": "random",
    "scale": 0.002,
    "layers": 2,
    "hidden": 8,
    "heads": 4,
    "dropout": 0.0,
    "threads": 1,
    "rounds": 2,
    "seed": 0,
}


@pytest.mark.filterwarnings("ignore:.torch.jit", "ignore:Sparse")
@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("model", ["sage", "gcn", "gat", "gatv2"])
def test_a_peer_has_our_losses(model, name):
    if name not in peers.installed():
        pytest.skip(f"needs {name}")
    result = measure_epochs(EpochRace(model=model, peers=[name], **TINY), has_exact=True)
    assert result.names == ["distgnn", name]
    assert len(result.losses[1]) == len(result.exact_losses) == 3
    assert result.loss_difference(1) < 1e-4
    # The peer in single precision would have exactly its own losses.
    assert all(0 < result.loss_error(index) < 1e-5 for index in (0, 1))


def test_losses_are_compared_with_the_largest_relative_difference():
    assert largest_difference([1.1, -2.0], [1.0, -4.0]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("losses", "others", "expected"),
    [
        ([0.0], [0.0], 0.0),
        ([0.5, 1.0], [0.0, 1.0], math.inf),
        ([1.0, math.nan], [1.0, 1.0], math.nan),
    ],
)
def test_losses_of_zero_and_no_numbers_are_compared(losses, others, expected):
    assert largest_difference(losses, others) == pytest.approx(expected, nan_ok=True)


def test_without_a_peer_or_with_dropout_there_is_nothing_exact_to_compare_with():
    for own in ({"peers": ["distgnn-bf16"]}, {"peers": [*PEERS], "dropout": 0.5}):
        race = EpochRace(model="sage", **{**TINY, **own})
        assert exact_losses(twin_graph(race), race) is None


def test_rows_stored_as_bfloat16_are_a_contestant_of_their_own():
    result = measure_epochs(EpochRace(model="sage", peers=["distgnn-bf16"], **TINY))
    assert result.names == ["distgnn", "distgnn-bf16"]
    assert 0 < result.loss_difference(1) < 1e-2


def test_a_twin_has_the_widths_of_its_original():
    graph = twin_graph(EpochRace(model="sage", peers=[], **TINY))
    assert (graph.num_features, graph.num_classes, graph.num_splits) == (128, 40, 1)
    assert graph.train_mask.mean() == pytest.approx(0.54, abs=0.05)


def test_the_verb_prints_one_json_object(capsys):
    words = "bench epoch --shapes arxiv --scale 0.002 --layers 2 --hidden 4 --rounds 2 --json"
    assert main([*words.split(), "--peers", "", "--threads", "1", "--memory", "off"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["names"] == ["distgnn"]
    assert len(result["seconds"][0]) == 2


def test_exact_losses_are_refused_with_dropout(capsys):
    assert main(["bench", "epoch", "--exact", "on", "--dropout", "0.5"]) == 2
    assert "--exact compares losses, and with --dropout 0.5 everybody" in capsys.readouterr().err


def test_an_unknown_model_is_refused():
    with pytest.raises(InputError, match=r"--model must be one of sage, gcn, .*, got 'gtn'"):
        measure_epochs(EpochRace(model="gtn", peers=[], **TINY))


def test_peak_memory_is_that_of_a_process_of_its_own():
    result = measure_epochs(EpochRace(model="sage", peers=[], **TINY), has_memory=True)
    (peak,) = result.peak_rss_bytes
    assert 50e6 < peak < 2e9
    assert set(result.phases) == {"aggregate", "pack", "exchange_wait", "weight_sync", "update"}
    assert sum(result.phases.values()) == pytest.approx(sum(result.seconds[0]) / 2)


def test_a_contestant_that_fails_in_its_process_is_named():
    race = EpochRace(model="sage", peers=[], **TINY)
    with pytest.raises(
        InputError, match=r"sar failed in a process of its own .*; use --memory off"
    ):
        peak_bytes(race, "sar")


def test_unknown_peers_are_refused():
    with pytest.raises(InputError, match="a peer must be one of dgl, pyg, distgnn-bf16, got 'sar'"):
        EpochRace(model="sage", peers=["sar"], **TINY)


def test_a_peer_that_is_not_installed_is_refused():
    missing = [name for name in PEERS if name not in peers.installed()]
    if not missing:
        pytest.skip("all peers are installed")
    race = EpochRace(model="sage", peers=missing[:1], **TINY)
    with pytest.raises(InputError, match=f"peer '{missing[0]}' is not installed"):
        measure_epochs(race)


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ({"shape": "redit"}, "a shape must be one of .*, got 'redit'"),
        ({"order": "best"}, "an order must be one of random, community, got 'best'"),
        ({"dropout": 1.5}, "dropout"),
    ],
)
def test_values_that_are_not_allowed_are_refused_before_the_race(own, sentence):
    with pytest.raises(InputError, match=sentence):
        EpochRace(model="sage", peers=[], **{**TINY, **own})


def test_races_that_ended_before_an_interrupt_are_written(tmp_path, monkeypatch):
    begun = []

    def interrupt(line):
        begun.append(line)
        if len(begun) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(bench_verb, "note", interrupt)
    out = tmp_path / "out.json"
    words = "bench epoch --shapes arxiv --scale 0.002 --layers 2 --hidden 4 --rounds 2"
    words += f" --orders random,community --threads 1 --memory off --out {out}"
    assert main([*words.split(), "--peers", ""]) == 130
    (result,) = json.loads(out.read_text())["results"]
    assert result["race"]["order"] == "random"
    before = out.read_bytes()
    begun[:] = ["the next is the second"]
    assert main([*words.split(), "--peers", ""]) == 130
    assert out.read_bytes() == before, "nothing was measured"
    begun.clear()
    out.unlink()
    assert main([*words.replace("random,comm", "random,x").split(), "--peers", ""]) == 2
    assert begun == []
    assert not out.exists()
