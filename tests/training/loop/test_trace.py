"""The picture of a run: every rank's spans on one clock, nested, and as long as the metrics say."""

from __future__ import annotations

import json
import time
from collections import defaultdict

import pytest
from graphs import cut, make_graph
from training import ends_of, make_config

from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.exchange.clock import PHASES, SpanClock
from distgnn.training.loop.stop import StoppedError
from distgnn.training.loop.trace import Trace, clock_offset
from distgnn.training.loop.trainer import Trainer

SPLIT = (*PHASES, "update")


def trained(path, *, num_ranks=3, num_epochs=5, epochs=range(1000), failures=None, **options):
    """Train on ranks as threads under a trace; the records of rank 0 and the file."""
    graph = make_graph("random")
    parts = cut(graph, num_ranks)
    config = make_config(static_input=False, epochs=num_epochs, **options)
    failures = failures or {}

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        trainer.begin_trace(Trace(path, group, epochs))
        records = []
        with trainer.trace:
            for record in trainer.epochs():
                records.append(record)
                if record["epoch"] in failures:
                    raise failures[record["epoch"]]
        return records

    for error in failures.values():
        with pytest.raises(type(error), match="stop"):
            run_ranks(num_ranks, on_rank)
        return None, json.loads(path.read_text())["traceEvents"]
    return run_ranks(num_ranks, on_rank)[0], json.loads(path.read_text())["traceEvents"]


def slices(events, **wanted):
    return [e for e in events if e["ph"] == "X" and all(e[k] == v for k, v in wanted.items())]


@pytest.mark.parametrize("algorithm", ["cd-0", "cd-2", "0c"])
def test_spans_sum_to_the_split_of_every_epoch(algorithm, tmp_path):
    records, events = trained(tmp_path / "trace.json", algorithm=algorithm)
    for record in records:
        spent = defaultdict(float)
        for event in slices(events):
            if event["args"]["epoch"] == record["epoch"]:
                spent[event["cat"], event["pid"]] += event["dur"] / 1e6
        for name in (*SPLIT, "epoch"):
            slowest = max(spent[name, rank] for rank in range(3))
            assert slowest == pytest.approx(record[f"{name}_s"], abs=1e-6), name
        assert max(spent["evaluate", rank] for rank in range(3)) == pytest.approx(
            record["eval_s"], abs=1e-6
        )


def test_spans_lie_in_their_epoch_and_do_not_overlap(tmp_path):
    _, events = trained(tmp_path / "trace.json")
    for rank in range(3):
        for epoch in slices(events, pid=rank, cat="epoch"):
            inside = [
                e
                for e in slices(events, pid=rank)
                if e["args"]["epoch"] == epoch["args"]["epoch"] and e["cat"] in SPLIT
            ]
            position = epoch["ts"]
            for event in inside:
                assert event["ts"] == pytest.approx(position, abs=2e-3)
                position = event["ts"] + event["dur"]
            assert position == pytest.approx(epoch["ts"] + epoch["dur"], abs=2e-3)


def test_spans_say_their_direction_and_aggregation(tmp_path):
    _, events = trained(tmp_path / "trace.json", layers=2)
    first = [
        (e["args"]["direction"], e["args"]["aggregation"])
        for e in slices(events, pid=0, cat="aggregate")
        if e["args"]["epoch"] == 1
    ]
    expected = [("forward", 1), ("forward", 2), ("backward", 2), ("backward", 1)]
    assert list(dict.fromkeys(first)) == expected


def test_epochs_are_marked_and_ranks_named(tmp_path):
    _, events = trained(tmp_path / "trace.json", epochs=range(1, 3))
    assert {e["args"]["epoch"] for e in slices(events)} == {1, 2}
    assert [e["name"] for e in events if e["ph"] == "i"] == ["epoch 1", "epoch 2"]
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert [name.split(" on ")[0] for name in names] == ["rank 0", "rank 1", "rank 2"]
    assert all(e["ts"] >= 0 for e in slices(events))


def test_spans_of_many_epochs_travel_more_than_once(tmp_path):
    path = tmp_path / "trace.json"
    _, events = trained(path, num_ranks=2, num_epochs=40, epochs=range(2, 37), eval_every=50)
    for rank in range(2):
        found = [e["args"]["epoch"] for e in slices(events, pid=rank, cat="epoch")]
        assert found == list(range(2, 37))


def test_what_there_is_after_an_error_is_written(tmp_path):
    _, events = trained(tmp_path / "trace.json", failures={17: RuntimeError("stop")}, num_epochs=30)
    found = {
        rank: [e["args"]["epoch"] for e in slices(events, pid=rank, cat="epoch")]
        for rank in range(3)
    }
    # Others' spans travel every 16 epochs.
    assert found == {0: list(range(18)), 1: list(range(16)), 2: list(range(16))}
    assert [item.name for item in tmp_path.iterdir()] == ["trace.json"]


def test_spans_of_all_ranks_are_written_when_the_run_is_stopped_in_order(tmp_path):
    stopped = {3: StoppedError("stop", 15)}
    _, events = trained(tmp_path / "trace.json", failures=stopped, num_epochs=9)
    for rank in range(3):
        found = [e["args"]["epoch"] for e in slices(events, pid=rank, cat="epoch")]
        assert found == list(range(4))


def test_a_file_that_can_no_longer_be_written_does_not_hide_the_stop(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()

    def on_rank(group):
        trace = Trace(folder / "trace.json", group, range(9))
        if group.rank == 0:
            folder.rmdir()
        trace.end_epoch(0)
        with pytest.raises(StoppedError, match="stop"), trace:
            raise StoppedError("stop", 15)

    run_ranks(2, on_rank)


def test_spans_of_the_epoch_that_failed_are_written(tmp_path):
    path = tmp_path / "trace.json"
    graph = make_graph("random")

    def on_rank(group):
        trainer = Trainer(make_config(lr=1e30), ends_of(graph), cut(graph, 1)[0], group)
        trainer.begin_trace(Trace(path, group, range(9)))
        with pytest.raises(InputError, match="in epoch 0, and no checkpoint"), trainer.trace:
            list(trainer.epochs())

    run_ranks(1, on_rank)
    events = json.loads(path.read_text())["traceEvents"]
    assert {e["args"]["epoch"] for e in slices(events, cat="aggregate")} == {0}


def test_an_empty_run_has_an_empty_trace(tmp_path):
    _, events = trained(tmp_path / "trace.json", epochs=range(90, 91))
    assert slices(events) == []


def test_clocks_are_set_by_the_quickest_round_trip():
    def on_rank(group):
        return clock_offset(group, lambda: time.perf_counter() + 100 * group.rank)

    assert run_ranks(3, on_rank) == pytest.approx([0, -100, -200], abs=0.05)


def test_a_clock_numbers_aggregations_backward_in_the_opposite_order():
    clock = SpanClock()
    for is_backward in (False, False, True, True):
        clock.start_pass(is_backward=is_backward)
        clock.add("pack", 0.0, 1.0)
    assert [span.aggregation for span in clock.take_spans()] == [1, 2, -2, -1]
    assert clock.take()["pack"] == 4.0
    clock.start_pass(is_backward=False)
    clock.add("pack", 0.0, 1.0)
    assert [span.aggregation for span in clock.take_spans()] == [1]


def test_a_file_that_cannot_be_written_is_refused_on_all_ranks_before_training(tmp_path):
    def on_rank(group, path):
        with pytest.raises(InputError) as caught:
            Trace(path, group, range(9))
        return str(caught.value)

    for path, why in (
        (tmp_path, "it is a directory; give a file's name"),
        (tmp_path / "no" / "trace.json", "No such file or directory; choose another file with"),
    ):
        for sentence in run_ranks(2, lambda group, path=path: on_rank(group, path)):
            assert f"cannot write trace '{path}': {why}" in sentence


def test_a_file_that_can_no_longer_be_written_is_an_error_at_the_end(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()

    def on_rank(group):
        trace = Trace(folder / "trace.json", group, range(9))
        if group.rank == 0:
            folder.rmdir()
        with pytest.raises(InputError, match=r"cannot write trace '.*': No such file"), trace:
            trace.end_epoch(0)

    run_ranks(2, on_rank)
