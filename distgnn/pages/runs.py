"""The page that shows several runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from distgnn.machine.units import human_bytes
from distgnn.pages.charts import bars, legend, legend_names, lines
from distgnn.pages.figures import NO_COMMAND, command_of, figures_of
from distgnn.pages.markup import Html, figure, page, pair, section, table, tag
from distgnn.pages.submission import submission_section
from distgnn.pages.text import human_count, human_seconds
from distgnn.training.loop.screened import with_confirmed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Records = Sequence[Mapping[str, Any]]


class ShownRun(NamedTuple):
    """A run on a page.

    Attributes:
        name: Name that tells it from the others.
        config: Content of config.json.
        records: Lines of metrics.jsonl.
        summary: Content of summary.json; None for a run that has not ended.
    """

    name: str
    config: Mapping[str, Any]
    records: Records
    summary: Mapping[str, Any] | None


def runs_page(runs: Sequence[ShownRun], facts: Mapping[str, str] | None = None) -> str:
    """Describe several runs side by side.

    Args:
        runs: The runs, at least two, with names that differ.
        facts: Figures from `submission_of`, if the runs are a series.

    Returns:
        An HTML document.
    """
    content = [
        *([submission_section(facts)] if facts else []),
        section("Figures", _figures(runs)),
        section("Settings that differ", _differing(runs)),
        section("Learning", *_learning(runs)),
        section("Time and traffic", *_costs(runs)),
        section("To repeat them", *_commands(runs)),
    ]
    return page(f"{len(runs)} runs: {', '.join(run.name for run in runs)}", *content)


def _names(runs: Sequence[ShownRun]) -> list[Html]:
    return legend_names(run.name for run in runs)


def _figures(runs: Sequence[ShownRun]) -> Html:
    found = [figures_of(run.config, run.records, run.summary) for run in runs]
    header = ["run", *(one.name for one in found[0])]
    rows = [
        [name, *(one.value for one in figures)]
        for name, figures in zip(_names(runs), found, strict=True)
    ]
    return table(header, rows, caption="The runs; metrics are those of the best epoch")


def _differing(runs: Sequence[ShownRun]) -> Html:
    flat = [_flat(run.config) for run in runs]
    keys = list(dict.fromkeys(key for values in flat for key in values))
    rows = [
        [key, *(_text(values.get(key)) for values in flat)]
        for key in keys
        if len({_text(values.get(key)) for values in flat}) > 1
    ]
    if not rows:
        return tag("p", "None: all runs have the same settings.")
    return table(["setting", *_names(runs)], rows, caption="All other settings are the same")


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    train = config.get("train")
    values = dict(train) if isinstance(train, dict) else {}
    model = values.pop("model", None)
    source = config.get("source")
    return {
        "source": source.get("source") if isinstance(source, dict) else None,
        "ranks": config.get("num_ranks"),
        **(model if isinstance(model, dict) else {}),
        **values,
    }


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _learning(runs: Sequence[ShownRun]) -> list[Html]:
    kinds = (
        ("Validation metric", "val_metric", "metric", False),
        ("Test metric", "test_metric", "metric", False),
        ("Loss before the step", "loss", "loss", True),
    )
    drawn = []
    for title, key, label, from_zero in kinds:
        series = {run.name: _points(with_confirmed(run.records), key) for run in runs}
        drawn += _curves(title, series, label, from_zero=from_zero)
    by_time = {run.name: _over_time(run.records) for run in runs}
    drawn += _curves(
        "Validation metric over seconds of training and evaluation",
        by_time,
        "metric",
        place="seconds",
    )
    return [pair(*drawn)]


def _curves(
    title: str,
    series: Mapping[str, list[tuple[float, float]]],
    label: str,
    *,
    from_zero: bool = False,
    place: str = "epoch",
) -> list[Html]:
    if not any(series.values()):
        return []
    ends = "; ".join(f"{name} ends at {human_count(p[-1][1])}" for name, p in series.items() if p)
    drawn = lines(
        series,
        labels=(place, label),
        description=f"{title}: {ends}",
        write=human_count,
        from_zero=from_zero,
        has_legend=False,
    )
    return [figure(title, legend(series), drawn, note=f"{ends}.")]


def _points(records: Records, key: str) -> list[tuple[float, float]]:
    return [
        (record["epoch"], float(record[key]))
        for record in records
        if isinstance(record.get(key), int | float)
    ]


def _over_time(records: Records) -> list[tuple[float, float]]:
    points, seconds = [], 0.0
    for record in with_confirmed(records):
        seconds += sum(float(record.get(key) or 0.0) for key in ("epoch_s", "eval_s"))
        if isinstance(record.get("val_metric"), int | float):
            points.append((seconds, float(record["val_metric"])))
    return points


def _costs(runs: Sequence[ShownRun]) -> list[Html]:
    kinds: tuple[tuple[str, str, Callable[[float], str]], ...] = (
        ("Median time of an epoch", "median_epoch_s", human_seconds),
        ("Rows sent per epoch by all ranks", "halo_bytes_per_epoch", human_bytes),
    )
    drawn = []
    for title, key, write in kinds:
        values = {run.name: _of(run.summary, key) for run in runs}
        if any(values.values()):
            known = {name: value for name, value in values.items() if value is not None}
            shown = ", ".join(f"{name} {write(value)}" for name, value in known.items())
            drawn.append(figure(title, bars(values, description=f"{title}: {shown}", write=write)))
    return [pair(*drawn) if drawn else tag("p", "No run has ended yet.")]


def _of(summary: Mapping[str, Any] | None, key: str) -> float | None:
    """Return a value; None of a run that has not ended: that of nothing would be the best."""
    value = (summary or {}).get(key)
    return float(value) if isinstance(value, int | float) else None


def _commands(runs: Sequence[ShownRun]) -> list[Html]:
    return [
        tag("div", tag("p", name), tag("pre", command_of(run.config) or NO_COMMAND))
        for name, run in zip(_names(runs), runs, strict=True)
    ]
