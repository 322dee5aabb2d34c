from __future__ import annotations

import pytest

from distgnn.pages.study import study_page


def page_of(count, sign=1.0, **changed):
    trials = [
        {
            "run": f"trial-{n}",
            "score": sign * (0.5 + n / 10),
            "epochs": 2,
            "settings": {"lr": 0.1 * (n + 1)},
            "failure": None,
        }
        for n in range(count)
    ]
    best = {"run": "trial-0", "settings": {"lr": 0.1}, "val_metric": 0.5, "test_metric": 0.5}
    summary = {
        "metric": "accuracy",
        "best": best,
        "trials": trials,
        "num_trials": count,
        "num_failed": 0,
        "seconds": 1.0,
        "epochs_trained": 4,
        "epochs_of_all": 4,
    }
    curves = {
        trial["run"]: [(1.0, 0.9 - n / 10), (2.0, 0.5 + n / 10)] for n, trial in enumerate(trials)
    }
    return study_page({**summary, **changed}, curves)


@pytest.mark.parametrize("count", [4, 5])
def test_importance_is_a_table_or_one_sentence(count):
    text = page_of(count)
    is_few = count == 4
    assert ("Too few trials to tell: 4, and more than 4 are needed." in text) == is_few
    assert ("that a setting explains by itself" in text) != is_few


@pytest.mark.parametrize("changed", [{"metric": "mse"}, {"objective": "epochs_to_goal"}])
def test_what_is_to_be_small_is_shown_as_it_is(changed):
    text = page_of(5, -1.0, **changed)
    assert "-0.5" not in text
    assert "<td>0.5</td>" in text


def test_the_best_evaluations_of_what_is_to_be_small_are_the_smallest(monkeypatch):
    seen = []
    monkeypatch.setattr("distgnn.pages.study.explained", lambda _, scores: seen.append(scores) or 0)
    for metric in ("mse", "accuracy"):
        page_of(5, metric=metric)
    low, high = seen
    assert all(a <= b for a, b in zip(low, high, strict=True))
    assert low[0] == 0.5
    assert high[0] == 0.9
