"""A clock of a device, whose work is done long after it was launched."""

from __future__ import annotations

import time

import pytest
import torch

from distgnn.exchange.clock import Clock, SpanClock, watch_of

CUDA = torch.device("cuda", 0)


class Event:
    """Events of torch on a device whose milliseconds are counted here."""

    now = 0.0

    def __init__(self, enable_timing):
        assert enable_timing
        self.at = None

    def record(self):
        self.at = Event.now

    def synchronize(self):
        assert self.at is not None

    def elapsed_time(self, other):
        return other.at - self.at


def test_phases_of_a_device_are_as_long_as_its_work(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Event)
    clock = SpanClock(watch_of(CUDA))
    for _ in range(2):
        clock.start_pass(is_backward=False)
        with clock.timed("aggregate"):
            Event.now += 250
        clock.start_pass(is_backward=True)
        Event.now += 125
        with clock.timed("pack"):
            Event.now += 500
        assert clock.seconds["aggregate"] == 0, "nothing waits for the device"
        seconds = clock.take()
        assert seconds["aggregate"] == pytest.approx(0.25, abs=1e-6)
        assert seconds["pack"] == pytest.approx(0.5, abs=1e-6)
        first, second = clock.take_spans()
        assert (first.name, first.aggregation) == ("aggregate", 1)
        assert (second.name, second.aggregation) == ("pack", -1)
        assert second.start - first.stop == pytest.approx(0.125, abs=1e-6)
        assert abs(first.start - time.perf_counter()) < 60  # on the clock of the host


@pytest.mark.gpu
def test_a_phase_of_a_gpu_lasts_until_its_work_is_done():
    clock = Clock(watch_of(CUDA))
    start = time.perf_counter()
    with clock.timed("aggregate"):
        torch.cuda._sleep(200_000_000)
    launched_s = time.perf_counter() - start
    with clock.timed("pack"):
        pass
    seconds = clock.take()
    assert seconds["aggregate"] > 10 * launched_s
    assert seconds["pack"] < seconds["aggregate"] / 10
    assert seconds["aggregate"] < time.perf_counter() - start
