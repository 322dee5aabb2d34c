"""Strategies spelled out: what is coded, what stays exact, and the bytes of a row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distgnn.exchange.codec import CodecSpec
    from distgnn.exchange.rule import HaloRule, Rule
    from distgnn.exchange.spared import Gate
    from distgnn.training.config.settings import TrainConfig
    from distgnn.weights.rule import Background, WeightRule

_STEPS = (
    "Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, "
    "NeurIPS 2017"
)
_MEANS = (
    "Seide et al., 1-Bit Stochastic Gradient Descent and its Application to Data-Parallel "
    "Distributed Training of Speech DNNs, Interspeech 2014"
)
_BRAIN = "Kalamkar et al., A Study of BFLOAT16 for Deep Learning Training, arXiv:1905.12322"
_PAPERS = {16: _BRAIN, 8: _STEPS, 4: _STEPS, 2: _STEPS, 1: _MEANS}
"""Publication behind the codes of each number of bits."""
_EXACT = (
    "ids",
    "scores, maxima and sums of attention",
    "rows that are fetched once, before the first epoch",
    "rows of the ends of links",
    "statistics of batch norm",
    "gradients of vectors and small tensors",
)
"""Data that no codec touches."""
_NOWHERE = dict.fromkeys(("forward", "backward"), "never sent")
_COLUMNS = (16, 64, 256)


def spell_out(config: TrainConfig, source: str) -> dict[str, Any]:
    """Describe what ranks send each other.

    Args:
        config: Settings of the run.
        source: Source of the run. Of a partition directory the bytes of an epoch are counted.

    Returns:
        JSON values by name.

    Raises:
        InputError: If a partition directory is damaged, or the run cannot be.
    """
    from distgnn.exchange.codec import EXACT
    from distgnn.training.config.presets import PRESETS
    from distgnn.training.loop.graphs import describe_start

    halo = config.given_halo
    codecs = halo.codecs
    preset = None if config.preset is None else PRESETS[config.preset]
    either = {"forward": codecs.forward, "backward": codecs.backward}
    papers = [] if preset is None or not preset.paper else [preset.paper]
    later = [codec for _, then in halo.later for codec in (then.forward, then.backward)]
    used = [*either.values(), *later]
    used += [config.weight_rule.codec, *(codec for _, codec in config.weight_rule.later)]
    papers += [_PAPERS[codec.bits] for codec in used if codec.bits in _PAPERS]
    least = min(codec.least_columns for codec in either.values())
    return {
        "preset": config.preset,
        "about": None if preset is None else preset.about,
        "settings": {} if preset is None else dict(preset.settings),
        "halo": config.halo,
        "warm_up_epochs": halo.warm_up_epochs,
        "start": config.start,
        "first_epochs": describe_start(config),
        "epoch": describe_epoch(config),
        **(_directions(halo) if not config.is_isolated else _NOWHERE),
        "weights": config.weights,
        "summed": describe_weights(config.weight_rule),
        "sends_at_most": halo.sends_at_most,
        "weights_at_most": config.weight_rule.sends_at_most,
        "evaluation": config.evaluation,
        "exact": [f"rows of fewer than {least} columns", *_EXACT],
        "papers": list(dict.fromkeys(papers)),
        "row_bytes": [
            {
                "columns": columns,
                "exact": EXACT.row_bytes(columns, 4),
                **{name: codec.row_bytes(columns, 4) for name, codec in either.items()},
            }
            for columns in sorted({*_COLUMNS, config.model.hidden})
        ],
        **_bytes_of_epoch(config, source),
    }


def describe_epoch(config: TrainConfig) -> str:
    """Describe in words how often an epoch sends what is predicted of it; empty if once.

    Args:
        config: Settings of the run.
    """
    if config.optimizer != "lbfgs":
        return ""
    return "a line search, which sends rows and gradients once for each evaluation of the loss"


def _directions(halo: HaloRule) -> dict[str, str]:
    """Describe what becomes of rows in either direction."""
    if halo.auto is not None:
        how = (
            "in codes that are chosen while the run trains: those of the fastest epoch, or exact "
            "where that takes 5 % longer at most; they change the validation metric by at most "
            f"{halo.auto.loss:g}"
        )
        return {"forward": how, "backward": how}
    found = {}
    for name in ("forward", "backward"):
        rule: Rule = getattr(halo, name)
        texts = [describe_rule(rule)]
        for epoch, codecs in halo.later:
            texts.append(f"from epoch {epoch} on {describe(getattr(codecs, name))}")
        found[name] = "; ".join(texts)
    return found


def describe_rule(rule: Rule) -> str:
    """Describe in words when rows travel, as what, and what becomes of them.

    Args:
        rule: Rule of one direction of the pass.
    """
    deal = rule.deal
    if deal.period == 0:
        return "never sent"
    turns = {
        "rows": f"each row in one of {deal.period} epochs",
        "peers": f"each pair of ranks in one of {deal.period} epochs",
        "together": f"all rows in {deal.open_for} of {deal.period} epochs",
        "random": f"1/{deal.period} of the rows, drawn in each epoch",
    }
    spared = rule.spared
    chosen = (
        ""
        if spared is None
        else f"those that changed most, in {100 * spared.limit:g} % of the bytes of all"
        if spared.limit
        else f"of {spared.best_of} rows for a rank the one that changed most"
        if spared.threshold is None
        else f"those that changed by more than a share of {spared.threshold:g}"
        + ", which falls with the root of the epoch" * spared.decays
    )
    voted = "" if rule.gate is None else _describe_gate(rule.gate)
    late = f"used {rule.delay} epoch{'s' * (rule.delay > 1)} after they were sent"
    said = (
        (not deal.is_whole, turns[deal.how]),
        (bool(voted), voted),
        (bool(chosen), chosen),
        (rule.delay > 0, late),
        (rule.refresh > 0, f"all of them exact in one of {rule.refresh} epochs"),
        (not rule.is_cached, "zero between their turns"),
        (rule.is_scaled, f"multiplied by {deal.period}"),
        (rule.smoothing > 0, f"averaged, of which a share of {rule.smoothing:g} stays"),
        (rule.has_trend, "moved on in each epoch by what they changed between refreshes"),
        (rule.remembers == "error", "with the error of the last code added"),
        (rule.remembers == "value", "as changes against what the receiver has"),
    )
    return "; ".join([describe(rule.codec), *(text for holds, text in said if holds)])


def _describe_gate(gate: Gate) -> str:
    """Describe in words when all ranks let rows travel."""
    age = f", or are {gate.most} epochs old" if gate.most else ""
    return f"all rows once those of {_who(gate)} changed {_level(gate, 'epochs')}{age}"


def _who(gate: Gate) -> str:
    """Describe in words who has to be above the threshold."""
    if isinstance(gate.vote, float):
        return f"{100 * gate.vote:g} % of the ranks"
    return {
        "any": "a rank",
        "half": "more than half of the ranks",
        "mean": "the ranks on average",
    }[gate.vote]


def _level(gate: Gate, times: str) -> str:
    """Describe in words above what."""
    if gate.quantile:
        return f"by more than in {100 * gate.quantile:.0f} % of the last {times}"
    return f"by more than a share of {gate.threshold:g}"


def describe(codec: CodecSpec) -> str:
    """Describe a codec in words.

    Args:
        codec: The codec.
    """
    if codec.bits == 32:
        return "as they are"
    if codec.bits == 16:
        return "bfloat16, rounded to the nearest"
    if codec.bits == 1:
        return "1 bit a value, for the mean of the values below or above the mean of the row"
    how = "at random, so that the mean stays" if codec.is_random else "to the nearest"
    how = f"a value between the least and the largest of the row, rounded {how}"
    adapts = codec.adaptation
    if adapts is None:
        return f"{codec.bits} bits {how}"
    choices = ", ".join(map(str, adapts.choices[:-1]))
    if adapts.error is None:
        budget = f"in at most the bytes of {codec.bits}"
    else:
        budget = f"with a relative error of at most {adapts.error:g}, where that can be"
    return (
        f"{choices} or {adapts.choices[-1]} bits {how}; by the ranges of each "
        f"{adapts.by}, measured every {adapts.every} epochs, {budget}"
    )


def describe_weights(rule: WeightRule) -> str:
    """Describe what ranks tell each other about weights in words.

    Args:
        rule: The rule.
    """
    if rule.significance is not None:
        later = ", which falls with the root of the steps" * rule.significance.decays
        return (
            "single values as they are, once they would move a weight by a share of "
            f"{rule.significance.threshold:g}{later}; the rest waits"
        )
    if rule.is_local:
        moments = ", with its own moments" if rule.keeps_moments else ""
        order = {"random": "random groups", "tournament": "groups in the rounds of a tournament"}
        how = order.get(rule.group_order, "rows and columns of a grid")
        whose = f"the mean of {how}, of {rule.group_size} each" if rule.group_size else "their mean"
        if rule.is_ring:
            told = describe(rule.codec)
            whose = f"its mean with two neighbors in a ring, who are told changes, {told},"
        if rule.codes_models:
            whose += f", found from their changes, {describe(rule.codec)},"
        if rule.background is not None:
            whose = _describe_background(rule.background, whose)
        count = rule.merge_every
        when = "after every step" if count == 1 else f"after every {count} steps"
        if rule.corrections:
            more = rule.corrections
            when += ", and after the next" if more == 1 else f", and after each of the next {more}"
        if rule.gate is not None:
            when = f"once gradients of {_who(rule.gate)} changed {_level(rule.gate, 'steps')}"
        if rule.travel is not None:
            when += (
                f" at first; every {rule.travel.every} epochs they move by the accuracy that "
                f"models lose on other ranks, where {100 * rule.travel.loss:g} points are allowed"
            )
        return f"none; each rank has a model of its own{moments}, and {whose} {when}"
    if rule.is_chosen:
        return (
            "in a code that is chosen while the run trains: that of the fastest epoch, or exact "
            "where that takes 5 % longer at most"
        )
    coded = "; ".join(
        [describe(rule.codec)]
        + [f"from epoch {epoch} on {describe(codec)}" for epoch, codec in rule.later]
    )
    if rule.machine_size:
        coded += (
            f", between machines of {rule.machine_size} ranks, on which they are added up first"
        )
    if rule.warm_up_steps:
        return (
            f"as they are in {rule.warm_up_steps} steps; then first moments, {coded}, while the "
            "second rests"
        )
    return coded


def _describe_background(how: Background, mean: str) -> str:
    """Describe what a model moves to; the mean in words."""
    way = "all of the way" if how.share == 1 else f"{how.share:g} of the way"
    center = {
        "mean": mean,
        "momentum": f"a mean that keeps {how.momentum:g} of its last move",
        "elastic": "a center that moves towards each of them",
    }[how.center]
    late = f", {how.lag} steps late" if how.lag else ""
    return f"goes {way} to {center}{late},"


def _bytes_of_epoch(config: TrainConfig, source: str) -> dict[str, int | float | None]:
    """Count what all ranks send in an epoch, where the source is a partition directory."""
    from distgnn.forecast.traffic import forecast, screened_bytes
    from distgnn.partition.directory.store import MANIFEST_NAME, read_manifest

    if not (Path(source) / MANIFEST_NAME).is_file():
        return {}
    manifest = read_manifest(source)
    plain = replace(config, preset=None, halo="exact", weights="sum")
    coded, exact = (forecast(source, manifest, one) for one in (config, plain))
    return {
        "halo_bytes_per_epoch": coded.bytes_per_epoch,
        "exact_halo_bytes_per_epoch": exact.bytes_per_epoch,
        "eval_halo_bytes": coded.evaluation_bytes,
        "screened_halo_bytes": screened_bytes(coded, config),
        "weight_bytes_per_epoch": coded.weight_bytes,
        "exact_weight_bytes_per_epoch": exact.weight_bytes,
    }
