"""Figures of a run that a page begins with, and the command that repeats the run."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from distgnn.datasets.columns import Columns
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import IN_MEMORY
from distgnn.machine.units import human_bytes
from distgnn.pages.markup import Html, tag
from distgnn.pages.text import human_count, human_seconds
from distgnn.settings.fields import settings_of
from distgnn.settings.model import ModelSettings
from distgnn.training.config.run import RunSettings
from distgnn.training.config.settings import TrainConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Records = Sequence[Mapping[str, Any]]

NO_COMMAND = "a model or a graph of one's own"
"""Text in place of the command that repeats a run."""
_SENT = ("halo_bytes_sent", "eval_halo_bytes_sent", "weight_bytes_sent")
_SWITCHES = ("deduplicate", "drop_self_loops", "undirected", "inverse_relations", "one_hot")
_WORDS = ("vertices", "split", "edge_split")


class Figure(NamedTuple):
    """One figure of a run.

    Attributes:
        name: Name of the figure.
        value: Value as text; a dash where the run has none.
        more: Remark below the value.
    """

    name: str
    value: str
    more: str = ""


def figures_of(
    config: Mapping[str, Any], records: Records, summary: Mapping[str, Any] | None
) -> list[Figure]:
    """Return the figures of a run that matter most.

    Args:
        config: Content of config.json.
        records: Lines of metrics.jsonl.
        summary: Content of summary.json; None for a run that has not ended.

    Returns:
        Test metric, epochs, time, bytes sent, peak memory, ranks.
    """
    found = summary or {}
    metric = found.get("metric", "metric")
    seconds = found.get("total_s")
    sent = sum(_number(record.get(name)) for record in records for name in _SENT)
    memory = [item for item in _list(found.get("peak_rss_bytes")) if isinstance(item, int | float)]
    best = found.get("best_epoch")
    each = found.get("median_epoch_s")
    return [
        Figure(f"test {metric}", _metric(found.get("test_metric")), _of_val(found)),
        Figure("epochs", human_count(len(records)), "" if best is None else f"best: {best}"),
        Figure(
            "time",
            "-" if seconds is None else human_seconds(_number(seconds)),
            "" if each is None else f"{human_seconds(_number(each))} an epoch",
        ),
        Figure("sent", human_bytes(sent), "by all ranks"),
        Figure(
            "peak memory",
            human_bytes(max(memory)) if memory else "-",
            "largest rank",
        ),
        Figure("ranks", str(config.get("num_ranks", "-"))),
    ]


def tiles(figures: Iterable[Figure]) -> Html:
    """Draw figures as tiles, which wrap on narrow screens."""
    return tag(
        "dl",
        *(
            tag("div", tag("dt", one.name), tag("dd", one.value, tag("small", one.more)))
            for one in figures
        ),
        class_="tiles",
    )


def command_of(config: Mapping[str, Any]) -> str:
    """Return the command that repeats a run; empty where no command can be known to.

    Args:
        config: Content of config.json.
    """
    source, train = config.get("source"), config.get("train")
    num_ranks = config.get("num_ranks", 1)
    if not (isinstance(source, dict) and isinstance(num_ranks, int)):
        return ""
    try:
        settings = TrainConfig.from_json(train)  # type: ignore[arg-type]
        flags = _flags(settings)
        given = source.get("columns")
        columns = Columns.from_json(given if isinstance(given, dict) else {}).words()
    except (InputError, KeyError, TypeError, ValueError):
        return ""
    if settings.model.own or source.get("source") == IN_MEMORY:
        return ""
    words = ["mpirun", "-n", str(num_ranks)] if num_ranks > 1 else []
    words += ["distgnn", "train", str(source.get("source", "SOURCE")), "--run", "RUN"]
    words += [f"--{key.replace('_', '-')}" for key in _SWITCHES if source.get(key)]
    for key in _WORDS:
        if source.get(key):
            value = source[key]
            text = "/".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            words += [f"--{key.replace('_', '-')}", text]
    words += columns
    if "cuts" in config:
        others = [str(name) for name in _list(config.get("other_cuts"))]
        if not others or any("," in name for name in others):
            return ""
        words += ["--cuts", ",".join(others)]
    return shlex.join([*words, *flags])


def _flags(config: TrainConfig) -> list[str]:
    """Return the fewest flags that give a configuration, greedily.

    Flags that others decide are left out one by one, the last ones first, as long as the settings
    stay what they are.
    """
    given: dict[str, Any] = {}
    usual = TrainConfig()
    for owner, values, defaults in (
        (ModelSettings, config.model, usual.model),
        (RunSettings, config, usual),
    ):
        for setting in settings_of(owner):
            value = getattr(values, setting.name)
            differs = value != getattr(defaults, setting.name)
            if (
                setting.about is not None
                and value is not None
                and (differs or setting.about.varies)
            ):
                given[setting.name] = value
    for name in reversed(list(given)):
        fewer = {key: value for key, value in given.items() if key != name}
        try:
            if TrainConfig.of(fewer) == config:
                given = fewer
        except InputError:
            continue
    if TrainConfig.of(given) != config:
        raise InputError("the settings of the run are given by no flags")
    words: list[str] = []
    for owner in (ModelSettings, RunSettings):
        for setting in settings_of(owner):
            if setting.name not in given:
                continue
            value = given[setting.name]
            if setting.is_plain:
                words.append(setting.flag if value else setting.flag.replace("--", "--no-", 1))
            elif isinstance(value, bool):
                words += [setting.flag, "on" if value else "off"]
            else:
                words += [setting.flag, str(value)]
    return words


def _of_val(found: Mapping[str, Any]) -> str:
    value = found.get("val_metric")
    return "" if value is None else f"validation {_metric(value)}"


def _metric(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else "-"


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
