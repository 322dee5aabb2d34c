"""Settings that do not go together: one table of conditions and sentences.

A value by itself is checked where its field is. What the graph decides is checked in
`training.tasks.tasks.resolve`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distgnn.datasets.errors import InputError
from distgnn.exchange.codec import EXACT
from distgnn.exchange.rule import HaloRule
from distgnn.nn.config import KINDS, models_with
from distgnn.settings.fields import flag_of, settings_of
from distgnn.settings.model import ModelSettings
from distgnn.training.config.codecs import halo_text, parse_halo, parse_weights
from distgnn.training.config.presets import PRESETS
from distgnn.training.config.run import RunSettings
from distgnn.training.config.strategy import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.exchange.rule import Rule as DirectionRule

    When = Callable[[RunSettings], bool]
    Sentence = Callable[[RunSettings], str]
    Rule = tuple[When, Sentence]

# More would be index lists of a row or two each.
_MAX_BINS = 4096
_SWITCHES = {setting.name for setting in settings_of(RunSettings) if setting.is_plain}
_MODEL_DEFAULTS = {setting.name: setting.default for setting in settings_of(ModelSettings)}


def check_together(config: RunSettings) -> None:
    """Refuse settings that contradict each other or have no effect.

    Args:
        config: A run whose values are allowed one by one.

    Raises:
        InputError: If there are such; it names the flags.
    """
    _refuse(config, RULES)


def check_length(config: RunSettings) -> None:
    """Refuse a delay or a warm-up after which a run that begins would have ended.

    Args:
        config: The run. One that is resumed, or pauses, may have fewer epochs.

    Raises:
        InputError: If there is such; it names the flag.
    """
    _refuse(config, LENGTHS)


def _refuse(config: RunSettings, rules: tuple[Rule, ...]) -> None:
    for when, sentence in rules:
        if when(config):
            raise InputError(sentence(config))


def _given(name: str, value: Any) -> str:
    """Return the words of the command line that set a field."""
    if value is False and name in _SWITCHES:
        return flag_of(name).replace("--", "--no-", 1)
    if isinstance(value, bool):
        return flag_of(name) if value else f"{flag_of(name)} off"
    return f"{flag_of(name)} {value}"


def _unlike_preset(config: RunSettings) -> list[tuple[str, Any]]:
    """Return the settings of the preset that the run has otherwise, with the preset's values."""
    preset = None if config.preset is None else PRESETS[config.preset]
    settings = {} if preset is None else preset.settings
    return [pair for pair in settings.items() if getattr(config, pair[0]) != pair[1]]


def _option_of_a_model(name: str) -> Rule:
    """Return the rule that an option is for the models that read it."""

    def when(config: RunSettings) -> bool:
        value = getattr(config.model, name)
        return value != _MODEL_DEFAULTS[name] and name not in config.model.kind.options

    def sentence(config: RunSettings) -> str:
        return (
            f"{_given(name, getattr(config.model, name))} has no effect on --model "
            f"{config.model.model}; drop it or use --model {' or '.join(models_with(name))}"
        )

    return when, sentence


def _of_layers(name: str) -> Rule:
    """Return the rule that an option of a model is not for modules that the user wrote."""
    return (
        lambda c: bool(c.model.own) and getattr(c.model, name) != _MODEL_DEFAULTS[name],
        lambda c: (
            f"{flag_of(name)} {getattr(c.model, name)} has no effect on a model of your "
            "own; set it in the module itself"
        ),
    )


def _of_known_layers(when: When, given: Sentence) -> Rule:
    """Return the rule that a setting is not for modules that the user wrote."""
    return (
        lambda c: bool(c.model.own) and when(c),
        lambda c: (
            f"{given(c)} needs to know the layers, so it has no effect on a model of your "
            "own; leave it out"
        ),
    )


def _of_delayed_rows(name: str, value: Callable[[RunSettings], Any], idle: Any) -> Rule:
    """Return the rule that a setting is for delayed rows."""
    return (
        lambda c: not c.strategy.is_delayed and value(c) != idle,
        lambda c: (
            f"{_given(name, value(c))} has no effect with --algorithm {c.algorithm}; "
            "use cd-R with R at least 1"
        ),
    )


def _of_a_cache(cache: str, smoothing: str, is_backward: bool) -> tuple[Rule, ...]:
    """Return the rules of what one direction makes of rows that arrive."""

    def rule(config: RunSettings) -> Any:
        return config.strategy.rule.backward if is_backward else config.strategy.rule.forward

    return (
        (
            lambda c: not rule(c).is_cached and c.strategy.rule.num_bins == 1,
            lambda _: (
                f"{_given(cache, False)} has no effect with 1 bin, as all rows arrive in every "
                "epoch; drop it or use --bins above 1"
            ),
        ),
        (
            lambda c: rule(c).smoothing > 0 and not rule(c).is_cached,
            lambda c: (
                f"{_given(smoothing, rule(c).smoothing)} averages the values of a row, but "
                f"{_given(cache, False)} drops them; drop one of the two"
            ),
        ),
        (
            lambda c: rule(c).smoothing > 0 and bool(c.model.kind.sends_no_sums(c.model)),
            lambda c: (
                f"{_given(smoothing, rule(c).smoothing)} averages sums, but "
                f"{c.model.kind.sends_no_sums(c.model)} sends others; "
                "use --smoothing 0 or another model"
            ),
        ),
    )


def _halo(config: RunSettings) -> str:
    """Return the words of the command line that say what rows are sent as."""
    given = f"--halo {config.halo}"
    return given if config.preset is None else f"{given} of --preset {config.preset}"


def _near(config: RunSettings) -> str:
    """Return the words of --halo with all rows rounded to the nearest."""
    rule = config.given_halo
    forward, backward = (
        replace(way, codec=replace(way.codec, is_random=False))
        for way in (rule.forward, rule.backward)
    )
    return halo_text(replace(rule, forward=forward, backward=backward))


def _too_many_bins(config: RunSettings) -> str:
    count = config.strategy.rule.num_bins
    if count == parse(config.algorithm)[1]:
        return (
            f"--algorithm {config.algorithm} deals rows among {count} bins, but at most "
            f"{_MAX_BINS} are allowed; use a smaller R or set --bins"
        )
    return f"--bins must be from 1 to {_MAX_BINS}, got {count}"


def _longest_delay(config: RunSettings) -> int:
    return config.epochs - config.warm_up_epochs - 1


def _too_late(config: RunSettings) -> str:
    delay, most, warm_up = config.strategy.rule.delay, _longest_delay(config), config.warm_up_epochs
    is_named = delay == parse(config.algorithm)[1]
    given = f"--algorithm {config.algorithm}" if is_named else f"--delay {delay}"
    after = f" after --warm-up-epochs {warm_up}" if warm_up else ""
    return (
        f"{given} uses rows {delay} epochs after they were sent, when --epochs "
        f"{config.epochs}{after} are over; use --delay {most} or less, or --epochs "
        f"{config.epochs + delay - most} or more"
    )


def _why_no_line_search(config: RunSettings) -> str:
    """Say why two evaluations of the loss are not of one function; empty where they are."""
    model = config.model
    drops = (
        ("dropout", model.dropout if model.num_hidden else 0.0),
        ("input_dropout", model.input_dropout),
        ("attention_dropout", model.attention_dropout),
    )
    reasons = (
        (bool(model.own), "a model of your own may draw random numbers; use another optimizer"),
        *((value > 0, f"{_given(name, value)} draws masks; set it to 0") for name, value in drops),
        (
            model.norm == "batch",
            "--norm batch would keep statistics of all that it tries; use --norm layer",
        ),
        (config.task == "link", "--task link draws pairs; use another optimizer"),
        (
            bool(config.labels_as_input),
            f"--labels-as-input {config.labels_as_input} draws labels; leave it out",
        ),
        (
            bool(config.clip_grad_norm),
            f"--clip-grad-norm {config.clip_grad_norm} changes its gradients; leave it out",
        ),
        (
            config.strategy.is_delayed or config.given_halo != HaloRule(),
            "rows that are coded or late change it; use --algorithm cd-0 or 0c and --halo exact",
        ),
        (config.weights != "sum", f"--weights {config.weights} rounds or splits it; use sum"),
    )
    return next((reason for holds, reason in reasons if holds), "")


def _of_directions(is_odd: Callable[[DirectionRule], bool], sentence: Sentence) -> tuple[Rule, ...]:
    """Return the rule that neither direction of --halo is as told."""
    return (
        (
            lambda c: is_odd(c.given_halo.forward) or is_odd(c.given_halo.backward),
            sentence,
        ),
    )


RULES: tuple[Rule, ...] = (
    (
        lambda c: bool(_unlike_preset(c)),
        lambda c: (
            f"--preset {c.preset} says {_given(*_unlike_preset(c)[0])}, got "
            f"{_given(_unlike_preset(c)[0][0], getattr(c, _unlike_preset(c)[0][0]))}; drop one of "
            "the two"
        ),
    ),
    *(
        _option_of_a_model(name)
        for name in sorted(set().union(*(kind.options for kind in KINDS.values())))
    ),
    (
        lambda c: c.model.jumping != "none" and not c.model.kind.has_hidden_sums,
        lambda c: (
            f"--jumping {c.model.jumping} leaves out the last layer, but --model {c.model.model} "
            "reads neighbours in no other; drop it or use --model gcn or sgc"
        ),
    ),
    (
        lambda c: bool(c.model.last_heads) and c.model.jumping != "none",
        lambda c: (
            f"--last-heads {c.model.last_heads} has no effect with --jumping {c.model.jumping}, "
            "whose linear layer gives the classes; drop one of the two"
        ),
    ),
    (
        lambda c: c.model.residual_map and not c.model.residual,
        lambda _: "--residual-map has no effect without --residual; add it or drop both",
    ),
    *(
        _of_layers(name)
        for name in _MODEL_DEFAULTS
        if name not in ("model", "own", "edge_features")
    ),
    _of_known_layers(lambda c: c.decay_of == "first", lambda _: "--decay-of first"),
    _of_known_layers(lambda c: c.recompute, lambda _: "--recompute"),
    _of_known_layers(lambda c: c.decoder != "dot", lambda c: f"--decoder {c.decoder}"),
    _of_known_layers(lambda c: c.task == "link", lambda _: "--task link"),
    (
        lambda c: bool(c.kfac) and c.optimizer != "kfac",
        lambda c: (
            f"--kfac {c.kfac} has no effect with --optimizer {c.optimizer}; drop it or use "
            "--optimizer kfac"
        ),
    ),
    (
        lambda c: c.optimizer == "kfac" and c.weight_rule.is_local,
        lambda c: (
            "--optimizer kfac preconditions one gradient by sums over all roots, but --weights "
            f"{c.weights} gives each rank weights of its own; use sum, int8 or int4"
        ),
    ),
    (
        lambda c: c.optimizer == "kfac" and not c.receptive_field and not c.model.own,
        lambda _: (
            "--optimizer kfac averages over the rows that the loss reads; drop --receptive-field "
            "off"
        ),
    ),
    _of_known_layers(lambda c: bool(c.quiet_epochs), lambda c: f"--start {c.start}"),
    (
        lambda c: c.starts_on_parts and c.is_isolated,
        lambda c: (
            f"--start {c.start} has no effect with --algorithm 0c, which trains on parts in all "
            "epochs; leave one of the two out"
        ),
    ),
    (
        lambda c: c.starts_on_parts and c.model.kind.is_typed,
        lambda c: (
            f"--start {c.start} is for edges without types, which --model {c.model.model} reads; "
            "use another model or --start graph"
        ),
    ),
    (
        lambda c: c.starts_on_parts and bool(c.labels_as_input),
        lambda c: (
            f"--start {c.start} sends no rows, but --labels-as-input {c.labels_as_input} are rows "
            "that vertices of other parts read; drop one of the two"
        ),
    ),
    (
        lambda c: c.starts_on_parts and c.is_second_order,
        lambda c: (
            f"--start {c.start} changes the loss in mid-run, but --optimizer {c.optimizer} keeps "
            "what it found of it; use another optimizer or --start graph"
        ),
    ),
    (
        lambda c: bool(c.quiet_epochs) and c.model.kind.is_typed,
        lambda c: (
            f"--start {c.start} trains without edges, but --model {c.model.model} has a map for "
            "each type of them; use another model or --start graph"
        ),
    ),
    (
        lambda c: bool(c.quiet_epochs) and c.model.reads_edge_features and not c.starts_on_parts,
        lambda c: (
            f"--start {c.start} trains without edges, but --model {c.model.model} reads their "
            "features; add --edge-features ignore or use --start graph"
        ),
    ),
    (
        lambda c: bool(c.quiet_epochs) and c.task == "link",
        lambda c: (
            f"--start {c.start} trains without rows of others, but --task link scores pairs of "
            "vertices; use --start graph"
        ),
    ),
    (
        lambda c: bool(c.quiet_epochs) and bool(c.labels_as_input),
        lambda c: (
            f"--start {c.start} would learn nothing of --labels-as-input {c.labels_as_input}, as "
            "no neighbour gives its labels; drop one of the two"
        ),
    ),
    (
        lambda c: bool(c.quiet_epochs) and not c.halo_rule.is_synchronous,
        lambda c: (
            f"--start {c.start} sends no rows that later epochs could use; use --algorithm cd-0 or "
            "0c, and --halo without delays, turns and memories"
        ),
    ),
    (
        lambda c: c.optimizer == "lbfgs" and bool(_why_no_line_search(c)),
        lambda c: (
            f"--optimizer lbfgs compares the losses of one function along a line, but "
            f"{_why_no_line_search(c)}"
        ),
    ),
    (
        lambda c: bool(c.labels_as_input) and c.model.kind.is_typed,
        lambda c: (
            f"--labels-as-input {c.labels_as_input} does not go with --model {c.model.model}; "
            "drop one of the two"
        ),
    ),
    (
        lambda c: (
            c.screening is not None
            and c.screening.codec.bits == 16
            and c.model.activations_dtype == "bf16"
        ),
        lambda _: (
            "--evaluation screened(bf16) saves nothing, as --activations-dtype bf16 sends such "
            "rows anyway; use int8"
        ),
    ),
    (
        lambda c: c.screening is not None and c.select_by == "loss",
        lambda c: (
            f"--select-by loss compares validation losses, which --evaluation {c.evaluation} "
            "measures of a few epochs only; use --select-by metric or --evaluation exact"
        ),
    ),
    (
        lambda c: c.screening is not None and c.stop_on == "loss",
        lambda c: (
            f"--stop-on loss waits for a lower validation loss, which --evaluation {c.evaluation} "
            "measures of a few epochs only; use --stop-on metric or --evaluation exact"
        ),
    ),
    (
        lambda c: c.recompute and c.model.norm == "batch",
        lambda _: (
            "--recompute would count the statistics of --norm batch twice; use --norm layer or none"
        ),
    ),
    (
        lambda c: c.reweight_loss and not c.is_isolated,
        lambda _: "--reweight-loss has an effect with --algorithm 0c only; drop one of the two",
    ),
    (
        lambda c: bool(c.coverage_correction) and not c.is_isolated,
        lambda c: (
            f"--coverage-correction {c.coverage_correction:g} has an effect with --algorithm 0c "
            f"only, got {c.algorithm}; drop one of the two"
        ),
    ),
    (
        lambda c: bool(c.coverage_correction) and c.reweight_loss,
        lambda c: (
            f"--coverage-correction {c.coverage_correction:g} and --reweight-loss both weigh "
            "vertices by the in-edges that their part has; give one of them"
        ),
    ),
    (
        lambda c: not c.overlap and (c.is_isolated or c.strategy.is_delayed),
        lambda c: (
            f"--overlap off has an effect with --algorithm cd-0 only, got {c.algorithm}; drop "
            "one of the two"
        ),
    ),
    _of_delayed_rows("bins", lambda c: c.strategy.rule.num_bins, 1),
    _of_delayed_rows("delay", lambda c: c.strategy.rule.delay, 0),
    _of_delayed_rows("delay_cache", lambda c: c.strategy.rule.forward.is_cached, True),
    _of_delayed_rows("gradient_cache", lambda c: c.strategy.rule.backward.is_cached, True),
    _of_delayed_rows("smoothing", lambda c: c.strategy.rule.forward.smoothing, 0),
    _of_delayed_rows("gradient_smoothing", lambda c: c.strategy.rule.backward.smoothing, 0),
    _of_delayed_rows("warm_up_epochs", lambda c: c.strategy.rule.warm_up_epochs, 0),
    (
        lambda c: c.strategy.is_delayed and c.strategy.rule.is_synchronous,
        lambda _: "--bins 1 --delay 0 delays nothing; use --algorithm cd-0",
    ),
    (
        lambda c: bool(c.labels_as_input) and c.strategy.is_delayed,
        lambda c: (
            f"--labels-as-input {c.labels_as_input} would let rows that --algorithm "
            f"{c.algorithm} delays hold labels that the loss asks for by now; use cd-0 or 0c"
        ),
    ),
    (
        lambda c: c.recompute and c.strategy.is_delayed,
        lambda c: (
            f"--recompute would read other delayed rows than --algorithm {c.algorithm} "
            "did before; use cd-0 or 0c"
        ),
    ),
    (
        lambda c: c.preset is not None and c.given_halo != parse_halo(PRESETS[c.preset].halo),
        lambda c: (
            f"--preset {c.preset} and --halo {c.halo} both say what rows are sent as; give one "
            "of them"
        ),
    ),
    (
        lambda c: (
            c.preset is not None and c.weight_rule != parse_weights(PRESETS[c.preset].weights)
        ),
        lambda c: (
            f"--preset {c.preset} and --weights {c.weights} both say what gradients are sent as; "
            "give one of them"
        ),
    ),
    (
        lambda c: c.weight_rule.warm_up_steps > 0 and c.optimizer not in ("adam", "adamw"),
        lambda c: (
            f"--weights {c.weights} lets the second moment of Adam rest, which --optimizer "
            f"{c.optimizer} does not have; use adam or adamw, or drop qadam"
        ),
    ),
    (
        lambda c: c.weight_rule.warm_up_steps > 0 and bool(c.clip_grad_norm),
        lambda c: (
            f"--clip-grad-norm {c.clip_grad_norm} shortens gradients, but with --weights "
            f"{c.weights} moments are summed in their place; drop one of the two"
        ),
    ),
    (
        lambda c: c.weight_rule.is_local and bool(c.ema),
        lambda c: (
            f"--ema {c.ema} averages the weights of one model, but with --weights {c.weights} "
            "each rank has its own; drop one of the two"
        ),
    ),
    (
        lambda c: c.weight_rule.travel is not None and c.given_halo.auto is not None,
        lambda c: (
            f"{_halo(c)} chooses codes and --weights {c.weight_rule.text} steps while the run "
            "trains, each by what the metric does; let one of the two"
        ),
    ),
    (
        lambda c: c.weight_rule.is_local and c.task == "link",
        lambda c: (
            f"--weights {c.weights} lets ranks have models of their own, whose rows a link model "
            "would mix; use sum or a codec"
        ),
    ),
    (
        lambda c: c.is_isolated and c.given_halo != HaloRule(),
        lambda c: (
            f"{_halo(c)} has no effect with --algorithm 0c, where nothing travels; drop one of "
            "the two"
        ),
    ),
    (
        lambda c: c.strategy.is_delayed and c.given_halo != HaloRule(),
        lambda c: (
            f"{_halo(c)} codes rows for the epoch in which they travel, but --algorithm "
            f"{c.algorithm} uses them later; give one of them"
        ),
    ),
    (
        lambda c: c.recompute and not c.given_halo.is_synchronous,
        lambda c: (
            f"--recompute would read other rows than {_halo(c)} gave it before; use a codec that "
            "is rounded to the nearest, or drop --recompute"
        ),
    ),
    (
        lambda c: bool(c.labels_as_input) and not c.given_halo.is_synchronous,
        lambda c: (
            f"--labels-as-input {c.labels_as_input} would let rows that {_halo(c)} keeps hold "
            "labels that the loss asks for by now; use a codec alone"
        ),
    ),
    (
        lambda c: not c.overlap and not c.given_halo.is_synchronous,
        lambda c: (
            f"--overlap off waits for the rows of an epoch, but {_halo(c)} uses those of others; "
            "drop one of the two"
        ),
    ),
    (
        lambda c: (
            c.given_halo != HaloRule() and replace(c.given_halo, warm_up_epochs=0) == HaloRule()
        ),
        lambda c: (
            f"{_halo(c)} warms up for nothing, as all rows travel as they are in every epoch; "
            "leave it out, or say what comes after it"
        ),
    ),
    *_of_directions(
        lambda rule: (
            rule.deal.period == 0
            and (
                rule.codec != EXACT
                or rule.delay > 0
                or rule.remembers != "nothing"
                or rule.spared is not None
            )
        ),
        lambda c: (
            f"{_halo(c)} says how rows travel that never do; keep never alone, or use every or bins"
        ),
    ),
    *_of_directions(
        lambda rule: rule.deal.how == "random" and (rule.is_cached or rule.smoothing > 0),
        lambda c: (
            f"{_halo(c)} draws rows at random, which bounds the age of none; add drop, or deal by "
            "rows"
        ),
    ),
    *_of_directions(
        lambda rule: rule.is_scaled and (rule.is_cached or rule.deal.is_whole),
        lambda c: (
            f"{_halo(c)} scales the rows that travel for those that count as zeros, but there are "
            "none; add drop and bins, or leave scale out"
        ),
    ),
    *_of_directions(
        lambda rule: not rule.is_cached and rule.deal.is_whole,
        lambda c: (
            f"{_halo(c)} drops rows between their turns, but all rows travel in every epoch; add "
            "bins, or leave drop out"
        ),
    ),
    *_of_directions(
        lambda rule: rule.refresh > 0 and not rule.keeps_rows and rule.codec == EXACT,
        lambda c: (
            f"{_halo(c)} refreshes rows that are exact in every epoch; leave refresh out, or add "
            "bins, delay or a codec"
        ),
    ),
    (
        lambda c: c.chooses_codes and bool(c.model.own),
        lambda c: (
            f"{'--weights auto' if c.given_halo.auto is None else _halo(c)} needs to know the "
            "layers, so it has no effect on a model of your own; choose a codec"
        ),
    ),
    (
        lambda c: c.given_halo.auto is not None and c.recompute,
        lambda c: (
            f"--recompute would send rows again that {_halo(c)} rounds at random; use a codec that "
            "is rounded to the nearest"
        ),
    ),
    (
        lambda c: c.given_halo.is_adaptive and not c.given_halo.is_synchronous,
        lambda c: (
            f"{_halo(c)} gives bits to the rows of an epoch, which travel in every epoch and are "
            "used in it; use adapt alone"
        ),
    ),
    (
        lambda c: c.given_halo.is_adaptive and bool(c.quiet_epochs),
        lambda c: (
            f"{_halo(c)} measures messages that are the same ones in every epoch, which those of "
            f"--start {c.start} are not; use a codec with the same bits in every row"
        ),
    ),
    (
        lambda c: c.given_halo.is_adaptive and not c.overlap,
        lambda c: (
            f"--overlap off measures codes of the same bits in every row, but {_halo(c)} gives "
            "each its own; drop one of the two"
        ),
    ),
    (
        lambda c: c.given_halo.is_adaptive and c.recompute,
        lambda c: (
            f"--recompute would send rows again that {_halo(c)} may give other bits; use a codec "
            "that is rounded to the nearest"
        ),
    ),
    *_of_directions(
        lambda rule: rule.remembers != "nothing" and rule.codec.bits >= 16,
        lambda c: (
            f"{_halo(c)} remembers what a code missed, but rows travel as they are; add a codec, "
            "such as int4"
        ),
    ),
    *_of_directions(
        lambda rule: rule.remembers == "value" and (not rule.is_cached or rule.smoothing > 0),
        lambda c: f"{_halo(c)} sends changes against what the receiver keeps; use keep with delta",
    ),
    *_of_directions(
        lambda rule: rule.spared is not None and (not rule.is_cached or rule.smoothing > 0),
        lambda c: (
            f"{_halo(c)} spares rows whose last value will do; use keep with changed, best and "
            "budget"
        ),
    ),
    *_of_directions(
        lambda rule: rule.spared is not None and rule.remembers == "error",
        lambda c: (
            f"{_halo(c)} compares rows with what was told, which holds the error of the code "
            "already; drop feedback, or use delta"
        ),
    ),
    *_of_directions(
        lambda rule: rule.spared is not None and not rule.spared.is_counted and rule.delay > 0,
        lambda c: (
            f"{_halo(c)} tells how many rows follow in the epoch in which they are used; drop "
            "delay, or use best"
        ),
    ),
    *_of_directions(
        lambda rule: (
            rule.has_trend and (not rule.refresh or (rule.deal.is_whole and not rule.is_by_value))
        ),
        lambda c: (
            f"{_halo(c)} predicts rows from two refreshes for epochs in which they do not travel; "
            "add refresh, and bins or changed"
        ),
    ),
    *_of_directions(
        lambda rule: rule.has_trend and rule.delay > 0,
        lambda c: (
            f"{_halo(c)} moves rows on in the epoch in which they are used, but delay uses others; "
            "drop one of the two"
        ),
    ),
    (
        lambda c: (
            any(rule.spared is not None for rule in (c.given_halo.forward, c.given_halo.backward))
            and c.model.kind.sends_no_sums(c.model).startswith("--aggregator")
        ),
        lambda c: (
            f"{_halo(c)} sends some rows only, but {c.model.kind.sends_no_sums(c.model)} sends "
            "values with the ids of their winners; use bins or a codec, or --aggregator mean"
        ),
    ),
    *(
        (
            lambda c, is_odd=is_odd: (
                any(is_odd(rule) for rule in (c.given_halo.forward, c.given_halo.backward))
                and bool(c.model.kind.sends_no_sums(c.model))
            ),
            lambda c: (
                f"{_halo(c)} adds up the values of a row, but "
                f"{c.model.kind.sends_no_sums(c.model)} sends others; "
                "use bins, delay or a codec, or another model"
            ),
        )
        for is_odd in (
            lambda rule: rule.smoothing > 0,
            lambda rule: rule.is_scaled,
            lambda rule: rule.remembers != "nothing",
            lambda rule: rule.has_trend,
        )
    ),
    (
        lambda c: c.recompute and c.halo_codecs.is_random,
        lambda c: (
            f"--recompute would send rows again that {_halo(c)} rounds at random; use "
            f"{_near(c)}, or drop --recompute"
        ),
    ),
    (
        lambda c: c.stop_on != "metric" and not c.patience,
        lambda c: f"--stop-on {c.stop_on} has no effect without --patience; add it or drop both",
    ),
    (lambda c: c.strategy.rule.num_bins > _MAX_BINS, _too_many_bins),
    *_of_a_cache("delay_cache", "smoothing", is_backward=False),
    *_of_a_cache("gradient_cache", "gradient_smoothing", is_backward=True),
)
"""Conditions that no run may meet, in the order in which they are checked, and what is said."""

LENGTHS: tuple[Rule, ...] = (
    (
        lambda c: 0 < c.epochs <= c.warm_up_epochs,
        lambda c: (
            f"--warm-up-epochs {c.warm_up_epochs} leaves none of the {c.epochs} epochs to "
            f"--algorithm {c.algorithm}; use fewer, more --epochs or --algorithm cd-0"
        ),
    ),
    (
        lambda c: 0 < c.epochs <= c.quiet_epochs.stop,
        lambda c: (
            f"--start {c.start} leaves none of the last of {c.epochs} epochs to the graph; use "
            "fewer, or more --epochs"
        ),
    ),
    (
        lambda c: 0 < c.epochs <= c.lr_warm_up,
        lambda c: (
            f"--lr-warm-up {c.lr_warm_up} leaves none of the {c.epochs} epochs to --lr; use "
            "fewer or more --epochs"
        ),
    ),
    (
        lambda c: 0 < c.epochs - c.restarts_at <= c.weight_rule.warm_up_steps,
        lambda c: (
            f"--weights {c.weights} is plain Adam for all of the epochs; use --epochs "
            f"{c.restarts_at + c.weight_rule.warm_up_steps + 1} or more, or --weights sum"
        ),
    ),
    (lambda c: c.strategy.rule.delay > _longest_delay(c), _too_late),
    (
        lambda c: 0 < c.epochs <= c.given_halo.warm_up_epochs,
        lambda c: (
            f"{_halo(c)} warms up for all of the {c.epochs} epochs; use --epochs "
            f"{c.given_halo.warm_up_epochs + 1} or more"
        ),
    ),
    (
        lambda c: c.given_halo.delay >= c.epochs - c.given_halo.warm_up_epochs > 0,
        lambda c: (
            f"{_halo(c)} uses rows {c.given_halo.delay} epochs after they were sent, when "
            f"--epochs {c.epochs} are over; use a shorter delay, or more epochs"
        ),
    ),
)
"""Conditions that no run that begins may meet: it would end before what is asked for begins."""
