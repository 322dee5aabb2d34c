from __future__ import annotations

import pytest

from distgnn.pages.study import study_page


def page_of(count):
    trials = [
        {
            "run": f"trial-{n}",
            "score": 0.5 + n / 10,
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
    curves = {trial["run"]: [(1.0, 0.4), (2.0, trial["score"])] for trial in trials}
    return study_page(summary, curves)


@pytest.mark.parametrize("count", [4, 5])
def test_importance_is_a_table_or_one_sentence(count):
    text = page_of(count)
    is_few = count == 4
    assert ("Too few trials to tell: 4, and more than 4 are needed." in text) == is_few
    assert ("that a setting explains by itself" in text) != is_few
