"""Schedulers on recorded tables of curves, beside the rules of their papers in brute force."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from curves import curves, play
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.tuning.schedulers import (
    Asha,
    Everything,
    Halving,
    HyperBand,
    Median,
    Population,
    StoppingAsha,
    first_rung,
    rungs,
)
from distgnn.tuning.trial import Stint, Trial, Visit


def best_until(table, epochs):
    return table[:, :epochs].max(axis=1)


@pytest.mark.parametrize("slots", [1, 3])
def test_halving_keeps_the_best_of_each_rung(slots):
    table = curves(64, 100, 0)
    scheduler = Halving(num_trials=64, epochs=100, grace=1, factor=4)
    trials, _ = play(scheduler, table.copy(), slots=slots)
    kept = np.arange(64)
    for rung, above in ((1, 4), (4, 16), (16, 100)):
        kept = kept[np.argsort(-best_until(table, rung)[kept])][: len(kept) // 4]
        assert {t.number for t in trials if t.epochs >= above} == set(kept)
    # The figure of successive halving: 64 x 1 + 16 x 3 + 4 x 12 + 1 x 84.
    assert sum(trial.epochs for trial in trials) == 244


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize(("epochs", "kept"), [(128, 2), (200, 1), (85, 3), (256, 1)])
def test_more_trials_continue_where_the_last_rung_is_near(slots, epochs, kept):
    table = curves(64, epochs, 8)
    scheduler = Halving(num_trials=64, epochs=epochs, grace=4, factor=4)
    trials, _ = play(scheduler, table.copy(), slots=slots)
    spent = {}
    for rung in rungs(grace=4, factor=4, epochs=epochs):
        spent[rung] = rung * sum(trial.epochs >= rung for trial in trials)
    # As in the paper, all trials of a rung cost as much as those of another, or less.
    assert list(spent.values())[:3] == [256, 256, 256]
    assert spent[epochs] == kept * epochs <= 256
    alive = [t.number for t in trials if t.epochs >= 64]
    best = sorted(alive, key=lambda number: -best_until(table, 64)[number])[:kept]
    assert {t.number for t in trials if t.epochs == epochs} == set(best)


def tied_curves(num_trials, num_epochs, seed):
    """Scores of which many are equal, as on a plateau where all predict one class; and losses."""
    losses = np.random.default_rng([seed, 1]).uniform(size=(num_trials, num_epochs))
    return np.round(curves(num_trials, num_epochs, seed), 1), losses


def best_places(table, losses, epochs):
    """For each trial its best evaluation: the highest score, and of equal ones the lowest loss."""
    pairs = zip(table[:, :epochs].tolist(), losses[:, :epochs].tolist(), strict=True)
    return [max(zip(row, [-loss for loss in of], strict=True)) for row, of in pairs]


@given(st.integers(0, 99), st.integers(1, 3))
@settings(max_examples=30)
def test_of_equal_scores_the_lower_loss_is_promoted(seed, slots):
    table, losses = tied_curves(32, 16, seed)
    scheduler = Halving(num_trials=32, epochs=16, grace=1, factor=4)
    trials, _ = play(scheduler, table, slots=slots, losses=losses)
    kept = list(range(32))
    for rung, above in ((1, 4), (4, 16)):
        places = best_places(table, losses, rung)
        kept = sorted(kept, key=lambda number: places[number])[-(len(kept) // 4) :]
        assert {t.number for t in trials if t.epochs >= above} == set(kept)
    asha = Asha(num_trials=32, epochs=16, grace=1, factor=4)
    trials, _ = play(asha, table, slots=slots, losses=losses, seed=seed)
    for rung, above in ((1, 4), (4, 16)):
        there = [t.number for t in trials if t.epochs >= rung]
        places = best_places(table, losses, rung)
        top = sorted(there, key=lambda number: places[number])[len(there) - len(there) // 4 :]
        assert set(top) <= {t.number for t in trials if t.epochs >= above}


def test_of_equal_scores_a_population_copies_the_lower_loss():
    table, losses = np.full((8, 20), 0.8), np.zeros((8, 20))
    losses[:] = np.array([5, 2, 7, 1, 8, 3, 6, 4])[:, None]
    scheduler = Population(num_trials=8, epochs=20, grace=10, seed=0)
    _, ended = play(scheduler, table, losses=losses)
    copies = [stint for stint in ended if stint.clone_of is not None]
    assert {stint.trial for stint in copies} == {2, 4}
    assert {stint.clone_of for stint in copies} <= {1, 3}


def test_a_trial_that_failed_does_not_stop_a_halving():
    table = curves(16, 16, 1)
    winner = int(best_until(table, 1).argmax())
    scheduler = Halving(num_trials=16, epochs=16, grace=1, factor=4)
    trials, _ = play(scheduler, table.copy(), fails={winner})
    assert sum(trial.epochs == 16 for trial in trials) == 1
    assert trials[winner].epochs == 1


@pytest.mark.parametrize("slots", [1, 4])
def test_hyperband_runs_the_brackets_of_the_paper(slots):
    scheduler = HyperBand(epochs=81, grace=1, factor=3)
    # Table 1 of the paper: the numbers of configurations of its brackets for R = 81, eta = 3.
    assert scheduler.num_trials == 81 + 34 + 15 + 8 + 5
    trials, ended = play(scheduler, curves(143, 81, 2), slots=slots)
    shortest = [trial.visits[0].epochs for trial in trials]
    assert shortest == [1] * 81 + [3] * 34 + [9] * 15 + [27] * 8 + [81] * 5
    assert sum(trial.epochs == 81 for trial in trials) == 1 + 1 + 1 + 2 + 5
    assert len({stint.trial for stint in ended}) == 143


@pytest.mark.parametrize(("epochs", "factor"), [(100, 3), (128, 3), (50, 2), (101, 4)])
def test_hyperband_rounds_as_the_paper_does_where_epochs_are_no_power(epochs, factor):
    scheduler = HyperBand(epochs=epochs, grace=1, factor=factor)
    most = math.floor(math.log(epochs, factor) + 1e-9)
    brackets = range(most, -1, -1)
    begun = [math.ceil(Fraction((most + 1) * factor**kept, kept + 1)) for kept in brackets]
    trials, _ = play(scheduler, curves(sum(begun), epochs, 9))
    shortest = [math.ceil(Fraction(epochs, factor**kept)) for kept in brackets]
    assert [t.visits[0].epochs for t in trials] == np.repeat(shortest, begun).tolist()
    for kept, num_trials, last in zip(brackets, begun, np.cumsum(begun), strict=True):
        own = trials[last - num_trials : last]
        # floor(n_s / eta^i) trials get to the rung i of a bracket; the last rung is all epochs.
        assert sum(t.epochs == epochs for t in own) == num_trials // factor**kept
        assert max(len(t.visits) for t in own) == kept + 1


@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 99), st.integers(1, 4))
@settings(max_examples=60)
def test_asha_promotes_the_top_of_each_rung(num_trials, slots, seed, grace):
    table = curves(num_trials, 64, seed)
    scheduler = Asha(num_trials=num_trials, epochs=64, grace=grace, factor=4)
    trials, _ = play(scheduler, table.copy(), slots=slots, seed=seed)
    levels = rungs(grace=grace, factor=4, epochs=64)
    assert len(trials) == num_trials
    for rung, above in itertools.pairwise(levels):
        there = [t.number for t in trials if t.epochs >= rung]
        promoted = {t.number for t in trials if t.epochs >= above}
        scores = best_until(table, rung)
        # A quarter, or more where the last rung has less than four times the epochs.
        most = math.floor(len(there) * rung / above)
        top = sorted(there, key=lambda number: -scores[number])[:most]
        # All of the top is promoted in the end; others were, when fewer trials were there.
        assert set(top) <= promoted <= set(there)
    # However few there are, one goes to the end.
    assert max(trial.epochs for trial in trials) == 64


def test_the_best_of_a_few_trials_goes_to_the_end():
    trials, ended = play(Asha(num_trials=3, epochs=16, grace=1, factor=4), curves(3, 16, 3))
    first = int(best_until(curves(3, 16, 3), 1).argmax())
    numbers = [(stint.trial, stint.epochs) for stint in ended]
    assert numbers == [(0, 1), (1, 1), (2, 1), (first, 4), (first, 16)]
    assert sum(trial.epochs for trial in trials) == 18


@given(st.integers(1, 40), st.integers(0, 99), st.integers(1, 9))
@settings(max_examples=30)
def test_asha_with_one_slot_is_halving(num_trials, seed, grace):
    table = curves(num_trials, 64, seed)
    words = {"num_trials": num_trials, "epochs": 64, "grace": grace, "factor": 4}
    asha, ended = play(Asha(**words), table)
    halving, _ = play(Halving(**words), table)
    assert [stint.epochs for stint in ended] == sorted(stint.epochs for stint in ended)
    # Of very few trials halving promotes one at every rung, and asha promotes the best one late.
    assert [t.epochs for t in asha] == [t.epochs for t in halving]


def test_asha_promotes_early_only_where_a_slot_would_be_idle():
    table = curves(8, 16, 3)
    scheduler = Asha(num_trials=8, epochs=16, grace=1, factor=4)
    slow, trials = 7, [Trial(number, {}) for number in range(8)]
    for number in range(7):
        assert scheduler.next(trials[:number], frozenset()) == Stint(number, 1)
        trials[number].curve = [(1, float(table[number, 0]))]
        trials[number].visits.append(Visit(1, number, trials[number].best()))
    # Seven of eight are there, and the eighth is slow.
    first = int(table[:7, 0].argmax())
    assert scheduler.next(trials, frozenset({slow})) == Stint(first, 4)


@given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=60)
def test_stopping_asha_is_the_rule_of_ray(num_trials, slots, seed):
    table = curves(num_trials, 64, seed)
    scheduler = StoppingAsha(num_trials=num_trials, epochs=64, grace=1, factor=4)
    trials, ended = play(scheduler, table.copy(), slots=slots, seed=seed)
    recorded = {rung: [] for rung in (1, 4, 16)}
    stopped = {}
    for stint in ended:
        if stint.epochs == 64:
            continue
        score = best_until(table, stint.epochs)[stint.trial]
        earlier = recorded[stint.epochs]
        if earlier and score < np.percentile(earlier, 75):
            stopped[stint.trial] = stint.epochs
        earlier.append(score)
    assert {t.number: t.epochs for t in trials if t.epochs < 64} == stopped


def test_median_stopping_compares_with_means_of_the_others():
    table = curves(12, 40, 4)
    trials, ended = play(Median(num_trials=12, epochs=40, grace=10), table.copy(), slots=4)
    reached = {}
    for stint in ended:
        others = [
            table[number, : stint.epochs].mean()
            for number, epochs in reached.items()
            if epochs >= stint.epochs and number != stint.trial
        ]
        reached[stint.trial] = stint.epochs
        best = table[stint.trial, : stint.epochs].max()
        stops = len(others) >= 3 and best < np.median(others)
        if stops:
            assert trials[stint.trial].epochs == stint.epochs
    assert sum(trial.epochs for trial in trials) < 12 * 40
    assert trials[int(table.max(axis=1).argmax())].epochs == 40


@pytest.mark.parametrize("slots", [1, 4])
def test_a_population_copies_its_best_quarter_over_its_worst(slots):
    table = curves(8, 40, 5)
    scheduler = Population(num_trials=8, epochs=40, grace=10, seed=0)
    begun = table.copy()
    trials, ended = play(scheduler, table, slots=slots)
    assert all(trial.epochs == 40 for trial in trials)
    copies = [stint for stint in ended if stint.clone_of is not None]
    # Two of eight in each of three generations.
    assert [stint.epochs for stint in copies] == sorted([20, 20, 30, 30, 40, 40])
    order = np.argsort(-best_until(begun, 10))
    first = [stint for stint in copies if stint.epochs == 20]
    assert {stint.trial for stint in first} == set(order[-2:])
    assert {stint.clone_of for stint in first} <= set(order[:2])


def test_everything_trains_every_trial_to_its_end():
    trials, ended = play(Everything(num_trials=5, epochs=7), curves(5, 7, 6), slots=2)
    assert [trial.epochs for trial in trials] == [7] * 5
    assert len(ended) == 5


@pytest.mark.parametrize(
    "scheduler",
    [
        Halving(num_trials=16, epochs=16, grace=1, factor=4),
        HyperBand(epochs=16, grace=1, factor=4),
        Asha(num_trials=16, epochs=16, grace=1, factor=4),
        StoppingAsha(num_trials=16, epochs=16, grace=1, factor=4),
        Median(num_trials=16, epochs=16, grace=2),
        Population(num_trials=16, epochs=16, grace=4, seed=0),
        Everything(num_trials=16, epochs=16),
    ],
    ids=lambda scheduler: type(scheduler).__name__,
)
def test_a_study_ends_whatever_fails(scheduler):
    for fails in ({0}, {0, 3, 5}, set(range(scheduler.num_trials))):
        table = curves(scheduler.num_trials, 16, 7)
        trials, _ = play(scheduler, table, slots=3, fails=fails)
        assert all(t.failure is not None for t in trials if t.number in fails)
        assert all(len(t.visits) == 1 for t in trials if t.number in fails)


def test_rungs_are_powers_up_to_the_last_epoch():
    assert rungs(grace=1, factor=4, epochs=100) == [1, 4, 16, 64, 100]
    assert rungs(grace=1, factor=4, epochs=64) == [1, 4, 16, 64]
    assert rungs(grace=9, factor=3, epochs=9) == [9]
    assert math.isclose(sum(rungs(grace=2, factor=2, epochs=9)), 2 + 4 + 8 + 9)


@pytest.mark.parametrize("factor", [2, 3, 4, 10])
@pytest.mark.parametrize("epochs", [2, 17, 32, 100, 128, 200, 1000])
def test_the_first_rung_is_the_longest_within_the_budget(factor, epochs):
    chosen = first_rung(factor=factor, epochs=epochs)
    num_trials = factor**8  # so many that no share is rounded much

    def share(grace):
        spent, kept, begun = 0, num_trials, 0
        for rung in rungs(grace=grace, factor=factor, epochs=epochs):
            kept = kept * begun // rung if begun else kept
            spent, begun = spent + kept * (rung - begun), rung
        return spent / (num_trials * epochs)

    assert chosen == 1 or share(chosen) <= 1 / 8 + 1e-6
    assert share(chosen + 1) > 1 / 8 - 1e-6 or chosen + 1 > epochs
