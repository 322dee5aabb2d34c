"""Codes that are chosen while a run trains: by the link, within a loss, and to be repeated."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from graphs import cut, make_graph
from training import ends_of, make_config

import distgnn as dg
from distgnn.api.job import Job
from distgnn.api.source import SourceOptions
from distgnn.api.strategy import spell_out
from distgnn.api.training import Training
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.exchange.route import plan_route
from distgnn.forecast import auto
from distgnn.forecast.auto import CHOICES, AutoCodes, choice_of, code_seconds, try_link
from distgnn.forecast.pace import Link
from distgnn.forecast.rehearsal import on_sample
from distgnn.forecast.traffic import planned_bytes, planned_weights
from distgnn.kernels.devices import PROCESSOR
from distgnn.nn.config import ModelConfig
from distgnn.training.config.codecs import halo_text, parse_halo, parse_weights
from distgnn.training.config.settings import TrainConfig
from distgnn.training.loop import graphs as run_graphs
from distgnn.training.loop.controllers import NoController
from distgnn.training.loop.graphs import chosen_epochs
from distgnn.training.loop.head_start import PartsStart
from distgnn.training.loop.trainer import Trainer
from distgnn.weights.rule import SUM
from distgnn.weights.traffic import WeightTraffic

OPTIONS = {"hidden": 20, "layers": 3, "dropout": 0.2, "epochs": 12, "static_input": False}
# Over the fast one nothing takes time, so that no epoch of a busy machine looks like all wait.
FAST, SLOW = Link(math.inf, 0.0), Link(1.0, 0.0)


def test_the_fastest_codes_are_taken_but_none_where_exact_rows_take_five_percent_more():
    def choice(seconds):
        return choice_of({(bits, 32): time for bits, time in zip(CHOICES, seconds, strict=False)})

    assert choice([1.0, 1.0, 1.0, 1.0, 1.0]) == (32, 32)
    assert choice([1.04, 5.0, 5.0, 1.0, 1.2]) == (32, 32)
    assert choice([1.06, 1.04, 1.04, 1.0, 1.2]) == (4, 32)
    assert choice([10.0, 5.0, 1.0, 1.0, 1.2]) == (8, 32)
    assert choice([10.0, 5.0, 3.0]) == (8, 32)
    assert choice([10.0]) == (32, 32)


def test_two_bits_have_to_be_faster_by_the_epochs_that_they_take_more():
    assert choice_of({(4, 32): 1.0, (2, 32): 0.7}) == (4, 32)
    assert choice_of({(4, 32): 1.0, (2, 32): 0.69}) == (2, 32)


def test_gradients_alone_stay_exact_where_rows_do_not():
    assert choice_of({(32, 32): 1.1, (8, 32): 1.04, (8, 8): 1.0}) == (8, 32)
    assert choice_of({(32, 32): 1.04, (8, 32): 1.0, (8, 8): 1.0}) == (32, 32)
    assert choice_of({(8, 4): 1.0, (4, 8): 1.0, (4, 4): 1.0}) == (8, 4)


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
    # Waits of threads on a busy machine differ by chance.
    monkeypatch.setattr(AutoCodes, "_is_changed", lambda self, records: True)
    monkeypatch.setattr(AutoCodes, "_late_s", lambda self, bits: 0.0)
    monkeypatch.setattr(auto, "code_seconds", lambda width, device: dict.fromkeys(CHOICES, 0.0))
    return found, looks


def trained(options, *, stop=None, folder=None, resume=False):
    """Records and the strategy of a run, rank by rank."""
    graph = make_graph("random", num_vertices=60)
    parts = cut(graph, 3)
    config = make_config(**{**OPTIONS, **options})

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        if config.chooses_codes:
            trainer.controller = AutoCodes(trainer)
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
    links[0][:] = [SLOW, SLOW, FAST, FAST, SLOW]
    found = trained({"halo": "auto(loss=0.9,every=3,start=graph)"})
    strategies = [figures["strategy"] for _, figures, _ in found]
    assert strategies == ["int4+at(3)+exact+at(9)+int4"] * 3
    assert "halo: int4 from epoch 9 on" in found[0][2]
    again = trained({"halo": strategies[0]})
    assert losses(again) == losses(found)
    other = trained({"halo": "int4"})
    assert losses(other)[:3] == losses(found)[:3]
    assert losses(other)[3:] != losses(found)[3:]
    assert [r["codec_bits"] for r in found[0][0]] == [4.0] * 3 + [0.0] * 6 + [4.0] * 3


def test_all_ranks_decide_by_the_slowest(links, monkeypatch):
    seconds = {0: FAST, 1: SLOW, 2: FAST}
    monkeypatch.setattr(auto, "try_link", lambda group, routes: seconds[group.rank])
    found = trained({"halo": "auto(loss=0.9,start=graph)"})
    assert [figures["strategy"] for _, figures, _ in found] == ["int4"] * 3


class Scores:
    def __init__(self, value):
        self.metric = {"val": value}


def test_rows_are_exact_again_where_codes_change_the_metric(links, monkeypatch):
    links[0][:] = [SLOW]
    monkeypatch.setattr(Trainer, "evaluate_on", lambda self, graph: Scores(2.0))
    found = trained({"halo": "auto(loss=0.9,every=2,start=graph)"})
    assert found[0][1]["strategy"] == "int4+at(2)+int8+at(4)+bf16+at(6)+exact"
    again = trained({"halo": found[0][1]["strategy"]})
    assert losses(again) == losses(found)


def test_a_metric_that_stays_below_its_best_makes_rows_exact(links, monkeypatch):
    links[0][:] = [SLOW]
    looks = {0: []}

    def evaluate_if_due(self):
        return {"test_metric": 0.0, "val_metric": 0.9 if self.num_epochs < 3 else 0.5}, 0.0

    def evaluate_on(self, graph):
        looks.setdefault(self.group.rank, []).append(self.num_epochs)
        return Scores(0.9 if self.num_epochs <= 3 else 0.5)

    monkeypatch.setattr(Trainer, "_evaluate_if_due", evaluate_if_due)
    monkeypatch.setattr(Trainer, "evaluate_on", evaluate_on)
    found = trained({"halo": "auto(loss=0.1,every=2,start=graph)", "weights": "auto", "hidden": 48})
    assert found[0][1] == {"strategy": "int4+at(8)+exact", "weights_strategy": "int4+at(8)+sum"}
    # Less and less often, where scores were the same.
    assert looks[0] == [2, 6]


def test_a_look_says_nothing_of_how_far_models_are_apart_in_the_next_epoch(links):
    links[0][:] = [SLOW]
    options = {"halo": "auto(loss=0.9,every=3,start=graph)", "weights": "every(8)", "eval_every": 5}
    records = trained(options)[0][0]
    said = [record["epoch"] for record in records if "consensus_distance" in record]
    assert said == [4, 9, 11]
    # The models that a look merges are bytes of looks, not of the epoch that follows.
    straight = trained({**options, "halo": "exact"})[0][0]
    assert [record["weight_bytes_sent"] for record in records] == [
        record["weight_bytes_sent"] for record in straight
    ]


def test_a_resumed_run_goes_on_with_its_schedule(links, tmp_path):
    links[0][:] = [SLOW, SLOW, FAST, SLOW, FAST]
    options = {"halo": "auto(loss=0.9,every=3,start=graph)", "weights": "auto", "hidden": 48}
    straight = trained(options)
    links[1].clear()
    trained(options, stop=7, folder=tmp_path)
    resumed = trained(options, folder=tmp_path, resume=True)
    schedule = "int4+at(3)+{0}+at(6)+int4+at(9)+{0}"
    assert straight[0][1]["strategy"] == schedule.format("exact")
    assert straight[0][1]["weights_strategy"] == schedule.format("sum")
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
    found = trained({"halo": "auto(every=4,start=graph)"})
    assert losses(trained({"halo": found[0][1]["strategy"]})) == losses(found)


def test_codes_of_gradients_alone_are_chosen_and_repeated(links):
    links[0][:] = [SLOW, SLOW, FAST]
    options = {"halo": "int8", "hidden": 48, "epochs": 22}
    found = trained({**options, "weights": "auto"})
    assert [figures for _, figures, _ in found] == [{"weights_strategy": "int4+at(10)+sum"}] * 3
    assert "weights: sum from epoch 10 on" in found[0][2]
    again = trained({**options, "weights": "int4+at(10)+sum"})
    assert losses(again) == losses(found)
    sent = [record["weight_bytes_sent"] for record in found[0][0]]
    assert sent == [record["weight_bytes_sent"] for record in again[0][0]]
    assert max(sent[:10]) < min(sent[10:])
    assert losses(trained({**options, "weights": "int4"}))[10:] != losses(found)[10:]


def test_gradients_whose_codes_follow_each_other_send_the_bytes_that_were_predicted():
    graph = make_graph("random", num_vertices=60)
    parts = cut(graph, 3)
    config = make_config(**OPTIONS | {"hidden": 48}, weights="int4+at(3)+sum+at(8)+int8")

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        told = planned_weights(config, trainer.model, trainer.weights.tables, trainer.graphs)
        planned = [told.bytes_in_epoch(3, epoch) for epoch in range(12)]
        assert told.bytes_per_epoch(3) == max(planned)
        assert told.ring_bytes(3) == told._replace(rule=SUM).ring_bytes(3)
        return planned, [record["weight_bytes_sent"] for record in trainer.epochs()]

    planned, sent = run_ranks(3, on_rank)[0]
    assert planned == sent
    assert len(set(sent)) == 3


def test_memory_of_chosen_codes_is_that_of_the_largest(links):
    def working(words):
        shapes = ((64, 64), (64,))
        return WeightTraffic(shapes, parse_weights(words)).working_bytes(4)

    most = max(working(words) for words in ("sum", "bf16", "int8", "int4"))
    assert working("auto") == most > working("sum")
    assert working("sum+at(5)+int8") == working("int8")


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
    with pytest.raises(InputError, match=r"^--weights auto needs to know the layers, so it has"):
        TrainConfig(model=ModelConfig(own="Net"), weights="auto")
    asked = replace(asked, config=make_config(weights="auto"))
    with pytest.raises(InputError, match=r"^--weights auto times work of the processor, got --dev"):
        asked.check()
    with pytest.raises(InputError, match=r"^--weights auto\+mean says more than auto, which choo"):
        make_config(weights="auto+mean")
    with pytest.raises(InputError, match=r"^--weights sum\+at\(3\)\+every\(2\)\+mean has at"):
        make_config(weights="sum+at(3)+every(2)+mean")
    net = torch.nn.Linear(2, 2)
    with (
        dg.init() as ranks,
        pytest.raises(InputError, match=r"changes the code of gradients in so"),
    ):
        ranks.replicate(net, weights="sum+at(3)+int8")


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


def codes_of(group, links_of, **options):
    """Controller of a rank whose looks find the links that a function of it gives."""
    graph = make_graph("random", num_vertices=60)
    parts = cut(graph, 3)
    config = make_config(**{**OPTIONS, "halo": "auto(start=graph)", **options})
    trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
    codes = AutoCodes(trainer)
    codes._prepare()
    links = iter(links_of(codes))

    def look():
        codes._link = next(links)
        return codes._link

    codes._try_link = look
    return codes


def record_of(epoch, epoch_s, wait_s, sync_s=0.0):
    return {
        "epoch": epoch,
        "epoch_s": epoch_s,
        "exchange_wait_s": wait_s,
        "pack_s": 0.0,
        "weight_sync_s": sync_s,
        "codec_error": 0.0,
        "val_metric": 0.5,
    }


def test_a_link_that_became_slower_hides_no_more_rows_than_before(monkeypatch):
    monkeypatch.setattr(AutoCodes, "_is_changed", lambda self, records: True)

    def links_of(codes):
        speed = codes._sent[32] / 0.005
        return [Link(speed, 0.0), Link(speed / 20, 0.0), Link(speed / 20, 0.0)]

    def on_rank(group):
        codes = codes_of(group, links_of, halo="auto(every=2,start=graph)")
        for epoch in range(2):
            codes.observe(record_of(epoch, 0.205, 0.005))
        assert codes.bits == 32
        # Meanwhile the link became slower, so that exact rows take 100 ms.
        for epoch in range(2, 4):
            codes.observe(record_of(epoch, 0.205, 0.005))
        return codes.bits

    assert set(run_ranks(3, on_rank)) == {4}


def test_waiting_for_slower_ranks_is_no_time_of_gradients():
    def links_of(codes):
        return [Link(codes._summed[32] / 0.002, 0.0)]

    def on_rank(group):
        codes = codes_of(group, links_of, halo="int8", weights="auto", hidden=48)
        codes._sum_s = dict.fromkeys(codes._sum_s, 0.0)
        for epoch in range(2):
            codes.observe(record_of(epoch, 0.1, 0.0, sync_s=0.085))
        return codes.weight_bits

    assert set(run_ranks(3, on_rank)) == {32}


def test_exact_sums_are_tried_where_coded_ones_take_longer_than_was_predicted():
    """Sums whose seconds are those that a test says; by link and code alone exact ones take 3."""
    taken = {4: 5.0, 32: 3.0}

    def chosen(seconds):
        def on_rank(group):
            def links_of(codes):
                return [Link(codes._summed[32] / 3.0, 0.0)]

            codes = codes_of(group, links_of, halo="int8", weights="auto", hidden=48, epochs=40)
            codes._sum_s = dict.fromkeys(codes._sum_s, 0.0)
            codes._weights = [(0, 4)]
            bits = []
            for epoch in range(25):
                sync_s = seconds[codes.weight_bits]
                codes.observe(record_of(epoch, 1.0 + sync_s, 0.0, sync_s=sync_s))
                bits.append(codes.weight_bits)
            return [bits[number] for number in (0, 1, 9, 19)]

        found = run_ranks(3, on_rank)
        assert found == [found[0]] * 3
        return found[0]

    assert chosen(taken) == [4, 32, 32, 32]
    # They may take as much longer themselves.
    assert chosen({4: 5.0, 32: 8.0}) == [4, 32, 4, 4]
    # Other codes are as late as one that was tried.
    assert chosen({4: 0.5, 32: 3.0}) == [4, 4, 4, 4]


def test_a_rank_with_few_rows_does_not_take_waits_for_others_for_its_work():
    def on_rank(group):
        codes = codes_of(group, lambda codes: [Link(1e7, 0.0)])
        # Exact rows of the other ranks take 100 ms.
        share = 0.1 if group.rank == 1 else 1.0
        codes._sent = {bits: share * 1e6 * bits / 32 for bits in CHOICES}
        codes._code_s = dict.fromkeys(CHOICES, 0.0)
        for epoch in range(2):
            codes.observe(record_of(epoch, 0.2, 0.1))
        return codes.bits

    assert set(run_ranks(3, on_rank)) == {4}


@pytest.mark.parametrize(("wait", "looks"), [(0.3, [2, 30, 40, 60, 70]), (0.19, [2, 30, 70])])
def test_the_link_is_timed_again_where_waits_have_changed_and_else_less_and_less_often(wait, looks):
    waits = [0.1] * 30 + [wait] * 20 + [0.1] * 60

    def on_rank(group):
        tried = []

        def links_of(codes):
            while True:
                tried.append(codes._now)
                yield Link(1e12, 0.0)

        codes = codes_of(group, links_of, epochs=200)
        codes._schedule.append((0, 32))
        for epoch, wait_s in enumerate(waits):
            codes._now = epoch + 1
            codes.observe(record_of(epoch, 1.0, wait_s))
        return tried

    # At first, at changes that are no small part of an epoch, and 20 and 40 epochs after an earlier
    # one that was for scores.
    assert run_ranks(3, on_rank) == [looks] * 3


def test_a_link_of_long_latency_is_tried_with_messages_that_are_longer(monkeypatch):
    tried = []

    def seconds_of(group, out, into, width, num_rounds):
        num_bytes = sum(count for count, _ in out) * width
        tried.append(num_bytes)
        return 0.05 + num_bytes / 1e7

    monkeypatch.setattr(auto, "_seconds_of", seconds_of)

    def on_rank(group):
        counts = [[0, 4], [4, 0]]
        route = plan_route(group, counts[group.rank], counts[group.rank])
        return try_link(group, [route])

    links = run_ranks(2, on_rank)
    assert links[0].bytes_per_s == pytest.approx(1e7, rel=1e-6)
    assert max(tried) == 1 << 18


def test_a_long_message_that_takes_no_longer_than_a_short_one_is_no_link_without_limit(monkeypatch):
    monkeypatch.setattr(auto, "_seconds_of", lambda group, out, into, width, num_rounds: 0.016)

    def on_rank(group):
        return try_link(group, [plan_route(group, [0, 0], [0, 0])])

    assert run_ranks(2, on_rank)[0].bytes_per_s == pytest.approx((1 << 20) / 0.001, rel=1e-3)


def test_a_cut_that_no_row_crosses_has_a_link_for_gradients():
    def on_rank(group):
        return try_link(group, [plan_route(group, [0, 0], [0, 0])])

    assert 1e3 < run_ranks(2, on_rank)[0].bytes_per_s < 1e12


def test_a_run_that_goes_on_alone_for_a_while_keeps_what_was_chosen():
    alone = NoController()
    alone.load_state({"schedule": [[0, 4]]})
    assert alone.state() == {"schedule": [[0, 4]]}
    assert NoController().state() == {}


@pytest.mark.parametrize(("wait_s", "bits"), [(0.0, 32), (10.0, 4)])
def test_only_the_wire_that_is_waited_for_counts(links, monkeypatch, wait_s, bits):
    graph = make_graph("random", num_vertices=60)
    parts = cut(graph, 3)
    config = make_config(**OPTIONS, halo="auto(start=graph)")

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        codes = AutoCodes(trainer)
        codes._prepare()
        # Exact rows take 10 s, beside 10 s of work.
        monkeypatch.setattr(codes, "_try_link", lambda: Link(codes._sent[32] / 10.0, 0.0))
        for epoch in range(2):
            codes.observe(record_of(epoch, 10.0 + wait_s, wait_s))
        return codes.bits

    assert set(run_ranks(3, on_rank)) == {bits}


def test_a_look_counts_with_the_evaluations_of_the_next_epoch(links, monkeypatch):
    links[0][:] = [SLOW]
    looks = {}

    def observe(self, record):
        looks.setdefault(self._trainer.group.rank, []).append(record["epoch"])
        time.sleep(0.2 if record["epoch"] == 4 else 0.0)

    monkeypatch.setattr(AutoCodes, "observe", observe)
    records = trained({"halo": "auto", "eval_every": 100})[0][0]
    assert looks[0] == list(range(12))
    assert records[5]["eval_s"] >= 0.2


def of_parts(monkeypatch):
    """Let runs choose epochs 2 to 12 for parts, which are worth it however busy a machine is."""
    monkeypatch.setattr(PartsStart, "coverage", property(lambda self: 1e9, lambda self, _: None))
    stop = 12

    def chosen(num_epochs, coverage):
        return range(2, min(stop, num_epochs - 1))

    monkeypatch.setattr(run_graphs, "chosen_epochs", chosen)


def course_of(graph_s, metrics=None):
    """Figures of a run whose epochs on the graph take so long, and those on parts one second."""

    def on_rank(group):
        codes = codes_of(group, lambda codes: [SLOW] * 40, halo="auto(every=5)", epochs=40)
        codes._has_parts = True
        codes._course.quiet, codes._course.coverage = range(2, 20), 0.5
        notes = []
        for epoch in range(40):
            is_on_parts = epoch in codes._course.quiet
            record = record_of(epoch, 1.0 if is_on_parts else graph_s, 0.0)
            metric = None if metrics is None else metrics[epoch]
            codes.observe(record | {"val_metric": metric})
            notes.append(codes.take_note())
        return codes.figures(), [note for note in notes if note and "from epoch" in note]

    found = run_ranks(3, on_rank)
    assert [figures for figures, _ in found] == [found[0][0]] * 3
    return found[0]


def test_epochs_are_of_parts_while_those_of_the_graph_take_longer_than_they_bring():
    # An epoch of parts brings half of one, so that it may take half as long, less 5 percent.
    figures, notes = course_of(2.2)
    assert figures["start_strategy"] == "parts(2:20)"
    assert figures["strategy"] == "exact+at(2)+int4"
    assert notes[0].startswith(
        "halo: parts alone from epoch 2 on, until epoch 20 at most; halo: int4"
    )
    assert notes[1].startswith("halo: rows from epoch 20 on")
    assert course_of(2.0)[0]["start_strategy"] == "parts(2:5)"


def test_parts_are_left_where_the_metric_has_not_risen_for_two_looks():
    rising = [0.4 + 0.01 * epoch for epoch in range(40)]
    assert course_of(2.2, rising)[0]["start_strategy"] == "parts(2:20)"
    # 0.5 in epoch 5, and never above 0.505 after it.
    flat = [*([0.4] * 5), *([0.5, 0.504, 0.503] * 13)]
    assert course_of(2.2, flat)[0]["start_strategy"] == "parts(2:16)"
    # No two evaluations say so yet.
    seldom = [0.5 if epoch in (5, 18) else None for epoch in range(40)]
    assert course_of(2.2, seldom)[0]["start_strategy"] == "parts(2:20)"


def test_a_resumed_run_goes_on_where_parts_were_left_or_will_be(links, tmp_path, monkeypatch):
    links[0][:] = [SLOW]
    of_parts(monkeypatch)
    options = {"halo": "auto(loss=0.9,every=3)", "weights": "auto", "hidden": 48, "epochs": 20}
    straight = trained(options)
    figures = straight[0][1]
    assert figures["start_strategy"].startswith("parts(2:")
    stop = int(figures["start_strategy"][8:-1])
    assert 6 < stop < 16
    sent = [record["halo_bytes_sent"] > 0 for record in straight[0][0]]
    assert sent == [not 2 <= epoch < stop for epoch in range(20)]
    for number, at in enumerate((1, 4, 17)):
        folder = tmp_path / str(number)
        trained(options, stop=at, folder=folder)
        resumed = trained(options, folder=folder, resume=True)
        assert resumed[0][1] == figures
        assert losses(resumed) == losses(straight)[at:]
    again = {"halo": figures["strategy"], "weights": figures["weights_strategy"]}
    again |= {"start": figures["start_strategy"], "hidden": 48, "epochs": 20}
    assert losses(trained(again)) == losses(straight)


def test_a_start_that_is_asked_for_stays(links):
    links[0][:] = [SLOW]
    found = trained({"halo": "auto(loss=0.9)", "start": "parts(1:6)"})
    sent = [record["halo_bytes_sent"] > 0 for record in found[0][0]]
    assert sent == [not 1 <= epoch < 6 for epoch in range(12)]
    assert "start_strategy" not in found[0][1]
    again = trained({"halo": found[0][1]["strategy"], "start": "parts(1:6)"})
    assert losses(again) == losses(found)


def test_a_run_that_began_on_one_rank_does_not_go_on_with_parts():
    def on_rank(group):
        codes = codes_of(group, lambda codes: [FAST], halo="auto", epochs=40)
        codes._has_parts, codes._course.quiet = True, range(2, 20)
        codes.load_state({})
        return codes._course.quiet

    assert run_ranks(3, on_rank) == [range(0)] * 3


def test_a_run_that_is_shortened_ends_on_the_graph(links, tmp_path, monkeypatch):
    links[0][:] = [SLOW]
    of_parts(monkeypatch)
    options = {"halo": "auto(loss=0.9)", "hidden": 48}
    trained({**options, "epochs": 16}, stop=4, folder=tmp_path)
    found = trained({**options, "epochs": 8}, folder=tmp_path, resume=True)
    assert found[0][1]["start_strategy"] == "parts(2:7)"
    assert [record["halo_bytes_sent"] > 0 for record in found[0][0]] == [False] * 3 + [True]


def test_parts_end_where_no_epoch_of_the_graph_was_timed(links, tmp_path, monkeypatch):
    links[0][:] = [SLOW]
    of_parts(monkeypatch)
    options = {"halo": "auto(loss=0.9)", "epochs": 14}
    trained(options, stop=1, folder=tmp_path)
    graph = make_graph("random", num_vertices=60)
    config = make_config(**{**OPTIONS, **options})

    def alone(group):
        trainer = Trainer(config, ends_of(graph), cut(graph, 1)[0], group)
        trainer.resume(trainer.checkpoints(tmp_path))
        next(trainer.epochs())
        trainer.save(trainer.checkpoints(tmp_path))

    run_ranks(1, alone)
    found = trained(options, folder=tmp_path, resume=True)
    assert found[0][1]["start_strategy"] == "parts(2:5)"


def test_a_rehearsal_is_of_the_graph():
    graph = make_graph("random", num_vertices=60)
    config = make_config(**{**OPTIONS, "epochs": 100}, halo="auto")
    sample = on_sample(cut(graph, 3)[0], ends_of(graph), config, 1000)
    assert sample.graphs.parts is None


def test_a_strategy_says_that_parts_may_train_alone():
    said = spell_out(make_config(**OPTIONS, halo="auto"), "cora")["first_epochs"]
    assert said.startswith("epochs that the run chooses on each part alone, which send no rows")
    assert not spell_out(make_config(**OPTIONS, halo="auto(start=graph)"), "cora")["first_epochs"]


def test_epochs_on_parts_leave_twice_the_share_that_they_do_not_see():
    assert chosen_epochs(100, 0.75) == range(2, 50)
    assert chosen_epochs(100, 1.0) == range(2, 75)
    assert not chosen_epochs(100, 0.53)
    assert not chosen_epochs(100, 0.1)


@pytest.mark.parametrize(
    "options",
    [
        {"halo": "auto", "task": "link"},
        {"halo": "auto", "model": "rgcn"},
        {"halo": "auto(start=graph)"},
        {"halo": "auto", "start": "mlp(2)"},
        {"halo": "auto", "labels_as_input": 0.5},
        {"halo": "auto", "optimizer": "kfac"},
        {"halo": "int4", "weights": "auto"},
    ],
)
def test_runs_that_do_not_start_on_parts(options):
    assert not make_config(**{**OPTIONS, **options}).may_start_on_parts


def test_words_of_auto_are_read_as_they_are_written():
    words = "auto(every=4,start=graph)"
    assert halo_text(parse_halo(words)) == words
    assert not parse_halo(words).auto.may_start
    assert halo_text(parse_halo("auto(start=parts)")) == "auto"


def test_what_sums_take_besides_is_that_of_their_kind_once_it_was_seen():
    one = AutoCodes.__new__(AutoCodes)
    one._late_sums_s = {}
    assert [one._late_s(bits) for bits in (32, 4)] == [0.0, 0.0]
    one._late_sums_s = {"exact": 2.0}
    assert [one._late_s(bits) for bits in (32, 4)] == [2.0, 2.0]
    one._late_sums_s = {"exact": 2.0, "coded": 3.0}
    assert [one._late_s(bits) for bits in (32, 4)] == [2.0, 3.0]
