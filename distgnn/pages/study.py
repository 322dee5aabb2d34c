"""The page about a search over settings."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from distgnn.pages.charts import legend, lines
from distgnn.pages.figures import Figure, tiles
from distgnn.pages.markup import Html, figure, folded, page, section, table, tag
from distgnn.pages.text import human_count, human_seconds
from distgnn.training.tasks.measures import lower_is_better

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Curves = Mapping[str, list[tuple[float, float]]]

_MOST_CURVES = 8
_NUM_BINS = 4


def study_page(summary: Mapping[str, Any], curves: Curves) -> str:
    """Describe a study.

    Args:
        summary: Content of its summary.json.
        curves: Epochs and validation metric of the evaluations of each trial, by its run.

    Returns:
        An HTML document.
    """
    trials = summary["trials"]
    best = summary["best"]["run"]

    def place(trial: Mapping[str, Any]) -> tuple[float, bool]:
        score = float("-inf") if trial["score"] is None else trial["score"]
        return score, trial["run"] == best  # of equal scores, it has the lowest loss

    ranked = sorted(trials, key=place, reverse=True)
    shown = {t["run"]: curves[t["run"]] for t in ranked[:_MOST_CURVES] if curves.get(t["run"])}
    content = [tiles(_figures(summary)), section("Best settings", _best(summary))]
    if shown:
        metric = str(summary["metric"])
        drawn = lines(
            shown,
            labels=("epoch", metric),
            description=f"validation {metric} of the best {len(shown)} trials",
            write=human_count,
            has_legend=False,
        )
        title = f"Validation {metric} of the best {len(shown)} trials"
        content.append(section("Learning", figure(title, legend(shown), drawn)))
    is_price = summary.get("objective", "val_metric") != "val_metric"
    is_low = lower_is_better(str(summary["metric"]))
    # Scores of what is to be small have their sign changed.
    sign = -1.0 if is_price or is_low else 1.0
    content.append(section("Rungs", _rungs(trials, sign)))
    content.append(section("Importance", *_importance(trials, curves, min if is_low else max)))
    content.append(section("Trials", folded("As a table", _trials(ranked, sign))))
    return page(f"Search over {', '.join(summary['best']['settings'])}", *content)


def _figures(summary: Mapping[str, Any]) -> list[Figure]:
    best, metric = summary["best"], summary["metric"]
    epochs, of_all = (human_count(summary[key]) for key in ("epochs_trained", "epochs_of_all"))
    return [
        Figure(f"val {metric}", _short(best["val_metric"]), f"of {best['run']}"),
        Figure(f"test {metric}", _short(best["test_metric"]), "of the same run"),
        Figure("trials", human_count(summary["num_trials"]), f"{summary['num_failed']} failed"),
        Figure("epochs trained", epochs, f"of {of_all} at most"),
        Figure("time", human_seconds(summary["seconds"]), "of all trials"),
    ]


def _best(summary: Mapping[str, Any]) -> Html:
    rows = [(name, _short(value)) for name, value in summary["best"]["settings"].items()]
    return table(["setting", "value"], rows, caption=f"Settings of {summary['best']['run']}")


def _rungs(trials: Sequence[Mapping[str, Any]], sign: float) -> Html:
    """Count the trials that were trained to each number of epochs, and no further."""
    ends: dict[int, list[float]] = defaultdict(list)
    for trial in trials:
        ends[trial["epochs"]].append(float("-inf") if trial["score"] is None else trial["score"])
    rows = [
        (epochs, len(scores), _short(sign * max(scores)) if max(scores) > float("-inf") else "-")
        for epochs, scores in sorted(ends.items())
    ]
    return table(
        ["epochs", "trials that ended there", "best of them"], rows, caption="Epochs of the trials"
    )


def _importance(
    trials: Sequence[Mapping[str, Any]],
    curves: Curves,
    best_of: Callable[[Sequence[float]], float],
) -> list[Html]:
    """Say how much of the spread of scores each setting explains by itself.

    Scores are those at the last epoch that all trials reached, since longer ones would count twice.
    Numbers are divided into quarters of equal size. The share is that of a one-way analysis of
    variance.
    """
    alive = [trial for trial in trials if curves.get(trial["run"])]
    if len(alive) <= _NUM_BINS:
        few = f"Too few trials to tell: {len(alive)}, and more than {_NUM_BINS} are needed."
        return [tag("p", few, class_="note")]
    common = min(curves[trial["run"]][-1][0] for trial in alive)
    scores = [
        [score for epoch, score in curves[trial["run"]] if epoch <= common] for trial in alive
    ]
    kept = [(trial, best_of(found)) for trial, found in zip(alive, scores, strict=True) if found]
    best = [score for _, score in kept]
    shares = {
        name: explained([trial["settings"][name] for trial, _ in kept], best)
        for name in alive[0]["settings"]
    }
    rows = [(name, f"{100 * share:.0f} %") for name, share in shares.items()]
    caption = f"Share of the spread of scores at epoch {common:g} that a setting explains by itself"
    return [table(["setting", "share"], rows, caption=caption)]


def explained(values: Sequence[Any], scores: Sequence[float]) -> float:
    """Return the share of the variance of scores that groups of equal values explain.

    Args:
        values: Value of the setting in each trial; numbers are grouped by quarters.
        scores: Score of each trial.

    Returns:
        Share from 0 to 1; 0 where all scores are equal.
    """
    groups: dict[Any, list[float]] = defaultdict(list)
    is_number = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if is_number and len(set(values)) > _NUM_BINS:
        order = sorted(range(len(values)), key=lambda place: values[place])
        for position, place in enumerate(order):
            groups[position * _NUM_BINS // len(values)].append(scores[place])
    else:
        for value, score in zip(values, scores, strict=True):
            groups[value].append(score)
    mean = statistics.fmean(scores)
    total = sum((score - mean) ** 2 for score in scores)
    between = sum(len(g) * (statistics.fmean(g) - mean) ** 2 for g in groups.values())
    return between / total if total else 0.0


def _trials(ranked: Sequence[Mapping[str, Any]], sign: float) -> Html:
    names = list(ranked[0]["settings"])
    rows = [
        (
            trial["run"],
            trial["epochs"],
            "failed" if trial["score"] is None else _short(sign * trial["score"]),
            *(_short(trial["settings"][name]) for name in names),
            trial["failure"] or "",
        )
        for trial in ranked
    ]
    return table(
        ["trial", "epochs", "best", *names, "why it failed"], rows, caption="Trials, the best first"
    )


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)
