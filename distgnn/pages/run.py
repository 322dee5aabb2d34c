"""The page about a training run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distgnn.machine.units import human_bytes
from distgnn.pages.charts import legend, lines, stack
from distgnn.pages.figures import command_of, figures_of, tiles
from distgnn.pages.markup import Html, escaped, figure, folded, page, pair, section, table, tag
from distgnn.pages.text import human_count, human_seconds
from distgnn.training.loop.goal import describe_goal
from distgnn.training.loop.screened import SCREENED, with_confirmed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Records = Sequence[Mapping[str, Any]]

_SPLITS = ("train", "val", "test")
_PHASES = {
    "aggregate_s": "aggregate",
    "update_s": "update",
    "pack_s": "pack",
    "exchange_wait_s": "wait for rows",
    "weight_sync_s": "sync weights",
}
_BYTES = {
    "Rows sent by all ranks": {"halo_bytes_sent": "training", "eval_halo_bytes_sent": "evaluation"},
    "Gradients and statistics sent by all ranks": {"weight_bytes_sent": "gradients"},
}


def run_page(
    config: Mapping[str, Any],
    records: Records,
    summary: Mapping[str, Any] | None,
    *,
    predicted: float | None = None,
) -> str:
    """Describe a run.

    Args:
        config: Content of config.json.
        records: Lines of metrics.jsonl, in order.
        summary: Content of summary.json; None for a run that has not ended.
        predicted: Bytes of rows that an epoch was to send; None if that is not known any more.

    Returns:
        An HTML document.
    """
    train = _mapping(config.get("train"))
    model = _mapping(train.get("model"))
    name = _mapping(config.get("task")).get("name", "a graph")
    content = [tiles(figures_of(config, records, summary))]
    if records:
        content.append(section("Learning", *_learning(records)))
        content.append(section("Time", *_time(records)))
        content.append(section("Traffic", *_predicted(records, predicted), *_traffic(records)))
    content.append(section("Summary", _summary(config, records, summary)))
    if command := command_of(config):
        content.append(section("To repeat it", tag("pre", command)))
    flat = {**{k: v for k, v in train.items() if k != "model"}, **model}
    content.append(section("Configuration", _configuration(config, flat)))
    return page(f"{model.get('model', 'a model')} on {name}", *content)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _summary(
    config: Mapping[str, Any], records: Records, summary: Mapping[str, Any] | None
) -> Html:
    if summary is None:
        facts = [("state", "has not ended"), ("epochs so far", len(records))]
        return _facts(facts, "The run so far")
    writers: dict[str, Callable[[Any], str]] = {
        "_bytes": human_bytes,
        "_bytes_per_epoch": human_bytes,
        "_bytes_sent": human_bytes,
        "_s": human_seconds,
    }
    facts = [("ranks", config.get("num_ranks", "-"))]
    if "goal" in summary:
        facts.append(("goal", describe_goal(summary)))
    for key, value in summary.items():
        if key == "goal":
            continue
        if isinstance(value, list):
            # One value a rank, but for what is a record of its own.
            numbers = [item for item in value if isinstance(item, int | float)]
            if key.endswith("_bytes") and numbers:
                facts.append((f"{_words(key)}, largest rank", human_bytes(max(numbers))))
            continue
        write = next((found for end, found in writers.items() if key.endswith(end)), _short)
        facts.append((_words(key), _short(value) if value is None else write(value)))
    return _facts(facts, "The run; metrics are those of the best epoch")


def _facts(facts: Sequence[tuple[str, object]], caption: str) -> Html:
    return tag("div", table(["fact", "value"], facts, caption=caption), class_="facts")


def _words(key: str) -> str:
    return key.replace("_", " ").removesuffix(" s").removesuffix(" bytes")


def _short(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {None: "-", True: "yes", False: "no"}[value]
    return human_count(value) if isinstance(value, int | float) else str(value)


def _series(records: Records, key: str) -> list[tuple[float, float]]:
    """Points of one value of all epochs that have it as a number."""
    return [
        (record["epoch"], float(record[key]))
        for record in records
        if isinstance(record.get(key), int | float)
    ]


def _curves(
    title: str, series: Mapping[str, list[tuple[float, float]]], label: str, **options: Any
) -> list[Html]:
    """A drawing of those curves that have points."""
    shown = {name: points for name, points in series.items() if points}
    if not shown:
        return []
    write = options.pop("write", human_count)
    ends = "; ".join(
        f"{name} from {write(points[0][1])} in epoch {points[0][0]:g} to {write(points[-1][1])} in "
        f"epoch {points[-1][0]:g}"
        for name, points in shown.items()
    )
    labels = ("epoch", label)
    options |= {"write": write, "has_legend": False}
    drawn = lines(shown, labels=labels, description=f"{title}: {ends}", **options)
    return [figure(title, legend(shown), drawn, note=f"{ends}.")]


def _learning(records: Records) -> list[Html]:
    exact = with_confirmed(records)
    metrics = {split: _series(exact, f"{split}_metric") for split in _SPLITS}
    metrics["val, screened"] = _series(records, SCREENED)
    loss = {"loss": _series(records, "loss")}
    return [
        pair(
            *_curves("Loss before the step", loss, "loss", from_zero=True),
            *_curves("Metric when it was evaluated", metrics, "metric"),
        ),
        folded("As a table", _table_of(records, ["loss", *(f"{s}_metric" for s in _SPLITS)])),
    ]


def _table_of(records: Records, keys: Sequence[str]) -> Html:
    """At most 200 epochs, evenly spread, with the last."""
    step = -(-len(records) // 200)
    kept = [*records[::step], *([records[-1]] if (len(records) - 1) % step else [])]
    rows = [(r["epoch"], *(_short(r.get(key)) for key in keys)) for r in kept]
    caption = "Epochs" if step == 1 else f"Every {step} epochs"
    return table(["epoch", *(_words(key) for key in keys)], rows, caption=caption)


def _time(records: Records) -> list[Html]:
    known = {
        name: [float(record.get(key) or 0.0) for record in records]
        for key, name in _PHASES.items()
        if any(isinstance(record.get(key), int | float) for record in records)
    }
    if not known:
        return []
    total = sum(sum(values) for values in known.values()) or 1.0
    shares = ", ".join(f"{name} {100 * sum(v) / total:.0f} %" for name, v in known.items())
    drawn = stack(
        known,
        labels=("epoch", "time"),
        description=f"Time of epochs by phase: {shares}",
        write=human_seconds,
    )
    note = (
        f"{shares}. Each phase is that of its slowest rank, so that together they may exceed an "
        "epoch; more than 120 epochs are averaged."
    )
    evaluation = {"epoch": _series(records, "epoch_s"), "evaluation": _series(records, "eval_s")}
    return [
        pair(
            figure("Where an epoch's time goes", legend(known, is_filled=True), drawn, note=note),
            *_curves(
                "Epochs and evaluations", evaluation, "time", write=human_seconds, from_zero=True
            ),
        )
    ]


def _predicted(records: Records, predicted: float | None) -> list[Html]:
    counted = [value for _, value in _series(records, "halo_bytes_sent")]
    if predicted is None or not counted:
        return []
    mean = sum(counted) / len(counted)
    text = f"Rows sent per epoch: {human_bytes(predicted)} predicted from the partition, "
    return [tag("p", f"{text}{human_bytes(mean)} counted on average.")]


def _traffic(records: Records) -> list[Html]:
    drawn = []
    for title, names in _BYTES.items():
        sent = {name: _series(records, key) for key, name in names.items()}
        if any(value for points in sent.values() for _, value in points):
            drawn += _curves(title, sent, "bytes", write=human_bytes, from_zero=True)
    if not drawn:
        return [tag("p", "Nothing was sent.")]
    errors = _series(records, "codec_error")
    if any(value for _, value in errors):
        drawn += _curves(
            "Error of the codes of rows, of the message that fared worst",
            {"error": errors},
            "relative to the rows",
            from_zero=True,
        )
    distances = _series(records, "consensus_distance")
    if any(value for _, value in distances):
        drawn += _curves(
            "Distance of the ranks' models from their mean, where it was evaluated",
            {"distance": distances},
            "relative to the mean",
            from_zero=True,
        )
    staleness = _series(records, "max_staleness")
    if any(value for _, value in staleness):
        oldest = {"oldest row": staleness}
        drawn += _curves("Age of the oldest row that was used", oldest, "epochs", from_zero=True)
        return [pair(*drawn)]
    return [pair(*drawn), tag("p", "No row was stale: all travelled in the epoch that used them.")]


def _configuration(config: Mapping[str, Any], flat: Mapping[str, Any]) -> Html:
    source = _mapping(config.get("source"))
    rows = [("source", escaped(source.get("source", "-")))]
    rows += [(key, escaped(_short(value))) for key, value in flat.items()]
    return _facts(rows, "As it was resolved")
