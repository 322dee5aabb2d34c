"""Figures of an epoch over all ranks, and of a run over all epochs."""

from __future__ import annotations

import json
import math

import pytest

from distgnn.comm.threads import run_ranks
from distgnn.exchange.clock import PHASES
from distgnn.training.loop.metrics import SLOWEST, SUMMED, over_ranks, peak_rss_bytes, summarise


def values_of(rank):
    """Values in which each rank is the slowest at something."""
    names = (*SUMMED, *SLOWEST)
    return {name: float((rank * 7 + index * 3) % 11) for index, name in enumerate(names)}


def test_bytes_and_loss_are_sums_and_times_those_of_the_slowest_rank():
    results = run_ranks(3, lambda group: over_ranks(group, values_of(group.rank)))
    columns = {name: [values_of(rank)[name] for rank in range(3)] for name in values_of(0)}
    expected = {name: sum(c) if name in SUMMED else max(c) for name, c in columns.items()}
    expected["codec_bits"] = expected.pop("code_bits") / expected.pop("coded_values")
    expected["consensus_distance"] = math.sqrt(expected.pop("deviation") / 3)
    assert results == [expected] * 3
    assert {"loss", "halo_bytes_sent", "weight_bytes_sent"} <= set(SUMMED)
    assert {"epoch_s", "eval_s", "update_s", *(f"{phase}_s" for phase in PHASES)} < set(SLOWEST)


def test_counts_are_whole_numbers_in_json():
    own = {**values_of(0), "halo_bytes_sent": float(2**52), "max_staleness": 3}
    values = run_ranks(2, lambda group: over_ranks(group, own))[0]
    assert json.dumps(values["halo_bytes_sent"]) == str(2**53)
    assert json.dumps(values["max_staleness"]) == "3"
    assert isinstance(values["loss"], float)


def record_of(epoch, **changes):
    names = ("train", "val", "test")
    metrics = {f"{name}_metric": epoch / 10 + index for index, name in enumerate(names)}
    numbers = {"loss": 5.0 - epoch, "epoch_s": 1.0 + epoch, "eval_s": 0.25}
    sent = {"halo_bytes_sent": 100 * epoch, "weight_bytes_sent": 8, "max_staleness": epoch}
    sent["eval_halo_bytes_sent"] = 60 * epoch
    return {"epoch": epoch, **metrics, **numbers, **sent, **changes}


def test_a_run_is_summed_up():
    records = [record_of(epoch, codec_error=0.5 - epoch / 10) for epoch in range(1, 4)]
    records = [record_of(0), *records]
    assert summarise(records, 1, num_epochs=4) == {
        "num_epochs": 4,
        "best_epoch": 1,
        "train_metric": pytest.approx(0.1),
        "val_metric": pytest.approx(1.1),
        "test_metric": pytest.approx(2.1),
        "final_loss": 2.0,
        "median_epoch_s": 2.5,
        "total_s": 1 + 2 + 3 + 4 + 4 * 0.25,
        "time_to_best_s": 1.0 + 2.0,
        "halo_bytes_per_epoch": 150,
        "eval_halo_bytes_per_epoch": 90,
        "weight_bytes_per_epoch": 8,
        "max_staleness": 3,
        "codec_error": 0.4,
    }


def test_a_run_without_a_best_epoch_has_no_metrics():
    summary = summarise([record_of(0)], None, num_epochs=1)
    assert summary["test_metric"] is None
    assert summary["time_to_best_s"] == 0


def test_a_run_whose_records_were_lost_still_has_a_summary():
    summary = summarise([], 3, num_epochs=0)
    assert (summary["num_epochs"], summary["best_epoch"]) == (0, 3)
    assert summary["final_loss"] is None
    assert summary["median_epoch_s"] == 0


def test_peak_memory_is_in_bytes():
    assert 50 * 2**20 < peak_rss_bytes() < 2**40
