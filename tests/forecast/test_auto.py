"""Codes that are chosen while a run trains: by the link, within a loss, and to be repeated."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from graphs import cut, make_graph
from training import ends_of, make_config

import distgnn as dg
from distgnn.api.job import Job
from distgnn.api.source import SourceOptions
from distgnn.api.training import Training
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.exchange.route import plan_route
from distgnn.exchange.rule import Auto
from distgnn.forecast import auto
from distgnn.forecast.auto import CHOICES, AutoCodes, choice_of, code_seconds, try_link
from distgnn.forecast.pace import Link
from distgnn.forecast.traffic import planned_bytes
from distgnn.kernels.devices import PROCESSOR
from distgnn.nn.config import ModelConfig
from distgnn.training.config.settings import TrainConfig
from distgnn.training.loop.trainer import Trainer

OPTIONS = {"hidden": 20, "layers": 3, "dropout": 0.2, "epochs": 12, "static_input": False}
FAST, SLOW = Link(1e12, 0.0), Link(1.0, 0.0)


def test_the_most_bits_within_five_percent_of_the_fastest_are_taken():
    assert choice_of([1.0, 1.0, 1.0, 1.0, 1.0], 2) == 32
    assert choice_of([10.0, 5.0, 1.04, 1.0, 1.2], 2) == 8
    assert choice_of([10.0, 5.0, 1.06, 1.0, 1.2], 2) == 4
    assert choice_of([10.0, 5.0, 3.0, 1.0, 0.1], 8) == 8
    assert choice_of([10.0, 5.0, 3.0, 1.0, 0.1], 32) == 32


@pytest.fixture
def links(monkeypatch):
    """The link that is measured in each look, for tests to change; the last one stays."""
    found = [FAST]
    looks = {}

    def look(group, routes):
        assert routes
        number = looks[group.rank] = looks.get(group.rank, -1) + 1
        return found[min(number, len(found) - 1)]

    monkeypatch.setattr(auto, "try_link", look)
    monkeypatch.setattr(auto, "code_seconds", lambda width, device: dict.fromkeys(CHOICES, 0.0))
    return found, looks


def trained(options, rule=None, *, stop=None, folder=None, resume=False):
    """Records and the strategy of a run, rank by rank."""
    graph = make_graph("random", num_vertices=60)
    parts = cut(graph, 3)
    config = make_config(**{**OPTIONS, **options})

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        if rule is not None:
            trainer.controller = AutoCodes(trainer, rule)
        if resume:
            trainer.resume(trainer.checkpoints(folder))
        records = []
        for record in trainer.epochs():
            records.append(record)
            if record["epoch"] + 1 == stop:
                trainer.save(trainer.checkpoints(folder))
                break
        return records, trainer.controller.figures(), trainer.controller.take_note()

    return run_ranks(3, on_rank)


def losses(found):
    return [(r["loss"], r["halo_bytes_sent"], r["test_metric"]) for r in found[0][0]]


def test_codes_follow_a_link_whose_speed_changes_and_the_schedule_repeats_the_run(links):
    links[0][:] = [SLOW, FAST, FAST, SLOW, SLOW]
    found = trained({"halo": "auto(loss=0.9,every=3)"}, Auto(0.9, 3))
    strategies = [figures["strategy"] for _, figures, _ in found]
    assert strategies == ["int2+at(3)+exact+at(9)+int2"] * 3
    assert "halo: int2 from epoch 9 on" in found[0][2]
    again = trained({"halo": strategies[0]})
    assert losses(again) == losses(found)
    other = trained({"halo": "int2"})
    assert losses(other)[:3] == losses(found)[:3]
    assert losses(other)[3:] != losses(found)[3:]
    assert [r["codec_bits"] for r in found[0][0]] == [2.0] * 3 + [0.0] * 6 + [2.0] * 3


def test_all_ranks_decide_by_the_slowest(links, monkeypatch):
    seconds = {0: FAST, 1: SLOW, 2: FAST}
    monkeypatch.setattr(auto, "try_link", lambda group, routes: seconds[group.rank])
    found = trained({"halo": "auto(loss=0.9)"}, Auto(0.9))
    assert [figures["strategy"] for _, figures, _ in found] == ["int2"] * 3


class Scores:
    def __init__(self, value):
        self.metric = {"val": value}


def test_rows_are_exact_again_where_codes_change_the_metric(links, monkeypatch):
    links[0][:] = [SLOW]
    monkeypatch.setattr(Trainer, "evaluate_on", lambda self, graph: Scores(2.0))
    found = trained({"halo": "auto"}, Auto(0.9, 2))
    assert found[0][1]["strategy"] == "int2+at(2)+int4+at(4)+int8+at(6)+bf16+at(8)+exact"
    again = trained({"halo": found[0][1]["strategy"]})
    assert losses(again) == losses(found)


def test_a_metric_that_stays_below_its_best_makes_rows_exact(links, monkeypatch):
    links[0][:] = [SLOW]
    now = {}

    def evaluate(self):
        number = now[self.group.rank] = now.get(self.group.rank, -1) + 1
        return Scores(0.9 if number < 3 else 0.5)

    monkeypatch.setattr(Trainer, "evaluate", evaluate)
    monkeypatch.setattr(
        Trainer,
        "evaluate_on",
        lambda self, graph: Scores(0.9 if now[self.group.rank] < 3 else 0.5),
    )
    monkeypatch.setattr(Trainer, "_evaluate_if_due", lambda self: ({"test_metric": 0.0}, 0.0))
    found = trained({"halo": "auto"}, Auto(0.1, 2))
    assert found[0][1]["strategy"] == "int2+at(8)+exact"


def test_a_look_says_nothing_of_how_far_models_are_apart_in_the_next_epoch(links):
    links[0][:] = [SLOW]
    options = {"halo": "auto", "weights": "every(8)", "eval_every": 5}
    records = trained(options, Auto(0.9, 3))[0][0]
    said = [record["epoch"] for record in records if "consensus_distance" in record]
    assert said == [4, 9, 11]


def test_a_resumed_run_goes_on_with_its_schedule(links, tmp_path):
    links[0][:] = [SLOW, FAST, SLOW, FAST]
    rule = Auto(0.9, 3)
    options = {"halo": "auto(loss=0.9,every=3)"}
    straight = trained(options, rule)
    links[1].clear()
    trained(options, rule, stop=7, folder=tmp_path)
    resumed = trained(options, rule, folder=tmp_path, resume=True)
    assert straight[0][1]["strategy"] == "int2+at(3)+exact+at(6)+int2+at(9)+exact"
    assert resumed[0][1] == straight[0][1]
    assert losses(resumed) == losses(straight)[7:]


def test_the_link_is_that_between_the_peers_of_a_run():
    counts = [[0, 5, 0], [3, 0, 70], [0, 0, 0]]

    def on_rank(group):
        route = plan_route(
            group, counts[group.rank], [counts[peer][group.rank] for peer in range(3)]
        )
        return try_link(group, [route, route.reversed()])

    found = run_ranks(3, on_rank)
    assert found[0] == found[1] == found[2]
    assert 1e3 < found[0].bytes_per_s < 1e12
    assert 0 < found[0].latency_s < 5


def test_codes_take_time_and_exact_rows_none():
    seconds = code_seconds(32, PROCESSOR)
    assert seconds[32] == 0
    assert all(0 < seconds[bits] < 1e-5 for bits in CHOICES[1:])


def test_a_measured_run_has_a_strategy_that_repeats_it():
    found = trained({"halo": "auto(every=4)"}, Auto(every=4))
    assert losses(trained({"halo": found[0][1]["strategy"]})) == losses(found)


def test_what_auto_cannot_choose_for_is_refused():
    with pytest.raises(InputError, match=r"^--recompute would send rows again that --halo auto"):
        make_config(halo="auto", recompute=True)
    with pytest.raises(InputError, match=r"^--halo auto needs to know the layers, so it has"):
        TrainConfig(model=ModelConfig(own="Net"), halo="auto")
    asked = Training(
        SourceOptions("cora"), make_config(halo="auto"), Path("r"), print, Job(device="cuda:0")
    )
    with pytest.raises(InputError, match=r"^--halo auto times work of the processor, got --device"):
        asked.check()
    with dg.init() as ranks, pytest.raises(InputError, match=r"halo auto needs to know the layers"):
        ranks.load("cora", halo="auto")


def test_codes_that_follow_each_other_send_the_bytes_that_were_predicted():
    graph = make_graph("random", num_vertices=60)
    parts = cut(graph, 3)
    config = make_config(**OPTIONS, halo="int2+at(3)+exact+at(8)+fwd:int8")

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        planned = planned_bytes(trainer.config, trainer.model, trainer.graphs)
        return planned, [record["halo_bytes_sent"] for record in trainer.epochs()]

    found = run_ranks(3, on_rank)
    assert 12 * sum(planned for planned, _ in found) == pytest.approx(sum(found[0][1]))
    assert len(set(found[0][1])) == 3


@pytest.mark.parametrize(("wait_s", "bits"), [(0.0, 32), (10.0, 4)])
def test_only_the_wire_that_is_waited_for_counts(links, monkeypatch, wait_s, bits):
    graph = make_graph("random", num_vertices=60)
    parts = cut(graph, 3)
    config = make_config(**OPTIONS, halo="auto")
    monkeypatch.setattr(AutoCodes, "_forward_seconds", lambda self: (10.0, wait_s))

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        codes = AutoCodes(trainer, Auto())
        codes._prepare()
        # An evaluation waits 10 s for the wire, and exact rows of an epoch take 30 s at most.
        speed = codes._evaluation_bytes / 10.0
        monkeypatch.setattr(codes, "_try_link", lambda: Link(speed, 0.0))
        codes.begin()
        return codes.bits

    assert set(run_ranks(3, on_rank)) == {bits}


def test_a_look_counts_with_the_evaluations_of_the_next_epoch(links, monkeypatch):
    links[0][:] = [SLOW]
    looks = {}

    def observe(self, record):
        looks.setdefault(self._trainer.group.rank, []).append(record["epoch"])
        time.sleep(0.2 if record["epoch"] == 4 else 0.0)

    monkeypatch.setattr(AutoCodes, "observe", observe)
    records = trained({"halo": "auto", "eval_every": 100}, Auto())[0][0]
    assert looks[0] == list(range(12))
    assert records[5]["eval_s"] >= 0.2
