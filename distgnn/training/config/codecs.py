"""Strategies of halos and weights in words."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from distgnn.datasets.errors import InputError
from distgnn.exchange.codec import EXACT, Adaptation, CodecSpec
from distgnn.exchange.rule import Auto, HaloRule, Rota, Rule
from distgnn.exchange.spared import Gate, Spared
from distgnn.training.config.grammar import Grammar, Parameter, Word
from distgnn.training.config.presets import names_of, silent_in
from distgnn.weights.rule import SUM, Background, Significance, Travel, WeightRule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distgnn.exchange.codec import Bits
    from distgnn.exchange.rule import How
    from distgnn.exchange.spared import Vote
    from distgnn.training.config.grammar import Direction
    from distgnn.weights.groups import Order

_Codes = TypeVar("_Codes")
_CODEC = "codec"
_APPLY = "apply"
_WHEN = "when"
_WHOM = "whom"
_MOMENTS = "moments"
_LAG = "lag"
_TRAVEL = "travel"
_MACHINES = "machine_size"
_SUM, _MEAN = "sum", "mean"
_DEAL = "deal"
_MEMORY = "memory"
_WARM_UP = "warm_up_epochs"
_LATER_CODES = "later"
_ROUND = {"round": Parameter({"random": True, "near": False})}


def _coded(bits: int) -> Word:
    """Return the word for codes of some bits; those with steps may be rounded in two ways."""

    def build(**arguments: object) -> object:
        is_random = bool(arguments.get("round", True))
        return CodecSpec(bits=bits, is_random=is_random)  # type: ignore[arg-type]

    has_steps = bits in (8, 4, 2)
    return Word(_CODEC, build, _ROUND if has_steps else {})


_CODECS: Mapping[str, Word] = {
    "exact": Word(_CODEC, lambda: EXACT, {}, is_synonym=True),
    "fp32": _coded(32),
    "bf16": _coded(16),
    "int8": _coded(8),
    "int4": _coded(4),
    "int2": _coded(2),
    "int1": _coded(1),
}
"""Table of codecs."""

_CHOICES = {"2|4|8": (2, 4, 8), "2|4": (2, 4), "4|8": (4, 8), "2|8": (2, 8)}


def _adapt(
    value: tuple[Bits, ...],
    every: int = 50,
    error: float | None = None,
    bits: Bits | None = None,
    by: Literal["row", "layer"] = "row",
    **more: bool,
) -> CodecSpec:
    if (error is None) == (bits is None):
        what = "two budgets, error and bits; keep one" if bits else "no budget; add bits or error"
        raise InputError(f"--halo adapt has {what}, as in adapt(2|4|8,bits=4)")
    if bits is not None and bits not in value:
        choices = " or ".join(map(str, value))
        raise InputError(
            f"--halo adapt gives {choices} bits to rows, so that its budget is no {bits} bits; "
            f"use bits={choices}"
        )
    how = Adaptation(value, every, error, by)
    return CodecSpec(bits or value[-1], is_random=more.get("round", True), adaptation=how)


_ADAPT = Word(
    _CODEC,
    _adapt,
    {
        "": Parameter(_CHOICES, is_required=True),
        "every": Parameter(least=1),
        "error": Parameter(number=float, below=1),
        "bits": Parameter({"2": 2, "4": 4, "8": 8}),
        "by": Parameter({"row": "row", "layer": "layer"}),
        **_ROUND,
    },
)


def _at(flag: str, value: int) -> object:
    raise InputError(
        f"--{flag} at({value}) says from which epoch on the words after it hold; write codes "
        "before and after it, as in int4+at(30)+int8"
    )


def _chosen(*, start: bool = Auto.may_start, **more: Any) -> Auto:
    return Auto(**more, may_start=start)


_LATER: Mapping[str, Word] = {
    "auto": Word(
        _CODEC,
        _chosen,
        {
            "loss": Parameter(number=float, below=1),
            "every": Parameter(least=1),
            "start": Parameter({"parts": True, "graph": False}),
        },
    ),
    "at": Word(_LATER_CODES, partial(_at, "halo"), {"": Parameter(least=1, is_required=True)}),
}
"""Table of words for codes that follow each other."""
_QUANTILE = re.compile("q([1-9][0-9]?)")
_CHANGE = re.compile(r"\+\s*at\s*\(\s*([0-9]+)\s*\)\s*\+")

_MOST_BINS = 4096


def _bins(value: int, deal: How = "rows") -> Rota:
    return Rota(deal, value)


def _every(value: int, **more: int) -> Rota:
    open_for = more.get("for", 1)
    if open_for > value:
        raise InputError(
            f"--halo every({value},for={open_for}) lets rows travel in {open_for} of {value} "
            f"epochs; for is at most {value}"
        )
    return Rota("together", value, open_for)


def _changed(value: float, *, decay: bool = False) -> Spared:
    return Spared(threshold=value, decays=decay)


def _best(value: int) -> Spared:
    return Spared(best_of=value)


def _budget(value: float) -> Spared:
    return Spared(limit=value)


class _Level(Parameter):
    """Threshold, or qNN for a quantile of NN percent: a number and 0, or 0 and a share."""

    @property
    def allowed(self) -> str:
        return f"{super().allowed}, or a quantile from q1 to q99"

    def read(self, word: str) -> object:
        found = _QUANTILE.fullmatch(word)
        return (super().read(word), 0.0) if found is None else (0.0, int(found[1]) / 100)


class _Share(Parameter):
    """Word for a vote, or the least share of ranks that carries it, as a float in (0, 1]."""

    @property
    def allowed(self) -> str:
        return f"{super().allowed}, or a share of the ranks above 0 and at most 1"

    def read(self, word: str) -> object:
        if word in self.values:
            return self.values[word]
        share = float(word)
        if not 0 < share <= 1:
            raise ValueError(word)
        return share


def _gate(value: tuple[float, float], vote: Vote = "any", most: int = 0) -> Gate:
    threshold, quantile = value
    return Gate(threshold, vote, most, quantile)


def _whole(least: int, below: int | None = None) -> Mapping[str, Parameter]:
    return {"": Parameter(least=least, below=below, is_required=True)}


_DEALS = Parameter({"rows": "rows", "peers": "peers", "random": "random"})
_SHARE = Parameter(number=float, below=1, is_required=True)
_MOVE = Parameter(number=float, below=1, above=0, is_required=True)
_LIMIT = Parameter(number=float, below=math.inf, is_required=True)
_ANY_LEVEL = _Level(number=float, is_required=True)
_LEVEL = _Level(number=float, below=math.inf, is_required=True)
_BUDGET = Parameter(number=float, least=0.001, below=1, is_required=True)
_CHANGE_OF_GRADIENT = Parameter(number=float, is_required=True)
_ORDER = Parameter({"random": "random", "tournament": "tournament", "grid": "grid"})
_DECAY = Parameter({"none": False, "sqrt": True})
_VOTE = _Share({"any": "any", "half": "half", "mean": "mean"})

_TIMES: Mapping[str, Word] = {
    "bins": Word(_DEAL, _bins, {**_whole(1, _MOST_BINS + 1), "deal": _DEALS}),
    "every": Word(_DEAL, _every, {**_whole(1), "for": Parameter(least=1)}),
    "never": Word(_DEAL, lambda: Rota(period=0), {}),
    "gate": Word(_DEAL, _gate, {"": _LEVEL, "vote": _VOTE, "most": Parameter(least=1)}),
    "best": Word("spared", _best, _whole(2)),
    "budget": Word("spared", _budget, {"": _BUDGET}),
    "changed": Word("spared", _changed, {"": _LIMIT, "decay": _DECAY}),
    "delay": Word("delay", lambda value: value, _whole(0)),
    "refresh": Word("refresh", lambda value: value, _whole(1)),
    "warmup": Word(_WARM_UP, lambda value: value, _whole(0)),
    "feedback": Word("remembers", lambda: "error", {}),
    "delta": Word("remembers", lambda: "value", {}),
    "keep": Word(_MEMORY, dict, {}),
    "drop": Word(_MEMORY, lambda: {"is_cached": False}, {}),
    "smooth": Word(_MEMORY, lambda value: {"smoothing": value}, {"": _SHARE}),
    "trend": Word(_MEMORY, lambda: {"has_trend": True}, {}),
    "scale": Word("is_scaled", lambda: True, {}),
}
"""Table of times and memories."""

HALO = Grammar(
    "--halo",
    {
        _CODEC: "what rows are sent as",
        _DEAL: "which rows travel",
        "spared": "which of them stay",
        "delay": "how old rows may be",
        "refresh": "when all rows travel",
        _WARM_UP: "how many epochs are synchronous",
        "remembers": "what the code remembers",
        _MEMORY: "what counts between turns",
        "is_scaled": "what multiplies rows",
        _LATER_CODES: "when other codes take over",
    },
    {**_CODECS, "adapt": _ADAPT, **_LATER, **_TIMES},
    names=names_of("halo"),
    silent=silent_in("halo"),
)
"""Words of --halo."""


def _changed_gradient(value: tuple[float, float], vote: Vote = "any") -> dict[str, object]:
    return {"merge_every": 1, "gate": _gate(value, vote)}


def _merged(value: int, **more: int) -> dict[str, object]:
    corrections = more.get("for", 0)
    if corrections >= value:
        raise InputError(
            f"--weights every({value},for={corrections}) leaves no step that a rank takes by "
            f"itself; for is below {value}, and every(1) merges in every step"
        )
    return {"merge_every": value, "corrections": corrections}


def _significant(value: float, *, decay: bool = False) -> dict[str, Significance]:
    return {"significance": Significance(value, decay)}


def _groups(value: int, order: Order = "random") -> dict[str, object]:
    if order == "tournament" and value % 2:
        raise InputError(
            f"--weights groups({value},order=tournament) lets halves of groups meet; give groups "
            "an even number of ranks"
        )
    return {"group_size": value, "group_order": order}


def _lerp(value: float) -> Background:
    return Background(share=value, is_corrected=False)


def _elastic(value: float) -> Background:
    return Background(center="elastic", share=value)


def _momentum(value: float, rate: float = 1.0, share: float = 0.5) -> Background:
    return Background(0, "momentum", share, is_corrected=False, momentum=value, rate=rate)


WEIGHTS = Grammar(
    "--weights",
    {
        _CODEC: "what gradients, or changes of models, are sent as",
        _APPLY: "what becomes of them",
        _WHEN: "when models are merged, or values told",
        _WHOM: "with whom",
        _LAG: "how many steps a merge takes",
        _MOMENTS: "what becomes of moments",
        _TRAVEL: "how steps move",
        _MACHINES: "where gradients are added up first",
        _LATER_CODES: "when other codes take over",
    },
    {
        **_CODECS,
        "auto": Word(_CODEC, Auto, {}),
        "at": Word(
            _LATER_CODES, partial(_at, "weights"), {"": Parameter(least=1, is_required=True)}
        ),
        _SUM: Word(_APPLY, partial(str, _SUM), {}),
        _MEAN: Word(_APPLY, partial(str, _MEAN), {}),
        "qadam": Word(_APPLY, lambda value: {"warm_up_steps": value}, _whole(1)),
        "corrected": Word(_APPLY, Background, {}),
        "lerp": Word(_APPLY, _lerp, {"": _MOVE}),
        "elastic": Word(_APPLY, _elastic, {"": _MOVE}),
        "momentum": Word(
            _APPLY,
            _momentum,
            {
                "": _SHARE,
                "rate": Parameter(number=float, below=math.inf),
                "share": Parameter(number=float, below=1, above=0),
            },
        ),
        "lag": Word(_LAG, lambda value: value, _whole(0)),
        "every": Word(_WHEN, _merged, {**_whole(1), "for": Parameter(least=1)}),
        "changed-gradient": Word(_WHEN, _changed_gradient, {"": _ANY_LEVEL, "vote": _VOTE}),
        "changed": Word(_WHEN, _significant, {"": _CHANGE_OF_GRADIENT, "decay": _DECAY}),
        "all": Word(_WHOM, dict, {}),
        "pairs": Word(_WHOM, partial(_groups, 2), {}),
        "ring": Word(_WHOM, lambda: {"is_ring": True, "keeps_moments": True}, {}),
        "groups": Word(_WHOM, _groups, {**_whole(2), "order": _ORDER}),
        "own-moments": Word(_MOMENTS, lambda: True, {}),
        "travel": Word(
            _TRAVEL,
            lambda value, loss=Travel.loss: Travel(value, loss),
            {**_whole(1), "loss": Parameter(number=float, below=1)},
        ),
        "machines": Word(_MACHINES, lambda value: value, _whole(2)),
    },
    has_directions=False,
    names=names_of("weights"),
    silent=silent_in("weights"),
)
"""Words of --weights."""


def parse_halo(text: str) -> HaloRule:
    """Read --halo.

    Args:
        text: Strategy in words, such as int8 or fwd:int8+bwd:int4(round=near), or a preset.

    Returns:
        The rule of both directions. All rows travel as they are, in every epoch, where the text
        says nothing else.

    Raises:
        InputError: If the text is no strategy; it says where and what is allowed.
    """
    text = HALO.names.get(text, text)
    rules = [
        (epoch, _parse_phase(text[:stop], start)) for epoch, start, stop in _phases("halo", text)
    ]
    phases = [(epoch, one.codecs, _is_codes_alone(one)) for epoch, one in rules]
    later = _later("halo", text, "exact or fwd:int8+bwd:int4", phases)
    return replace(rules[0][1], later=later)


def _phases(flag: str, text: str) -> list[tuple[int, int, int]]:
    """Divide words at each at(N): the epochs from which parts hold, where they begin and end."""
    marks = list(_CHANGE.finditer(text))
    epochs = [0, *(int(mark[1]) for mark in marks)]
    for last, epoch in pairwise(epochs):
        if epoch <= last:
            after = f" after at({last})" if last else ""
            raise InputError(f"--{flag} {text} has at({epoch}){after}; epochs ascend, from 1")
    starts = [0, *(mark.end() for mark in marks)]
    stops = [*(mark.start() for mark in marks), len(text)]
    return list(zip(epochs, starts, stops, strict=True))


def _later(
    flag: str, text: str, example: str, phases: Sequence[tuple[int, _Codes, bool]]
) -> tuple[tuple[int, _Codes], ...]:
    """Return the codes that take over from those before, by epoch.

    Args:
        flag: Flag of the words.
        text: The words.
        example: Words that are codes alone, for a message.
        phases: Epochs from which codes hold, these, and whether the words say nothing else.
    """
    codes, later = phases[0][1], list[tuple[int, _Codes]]()
    for epoch, then, is_alone in phases[1:]:
        if not (is_alone and phases[0][2]):
            raise InputError(
                f"--{flag} {text} has at({epoch}) between words that are not codes alone; use "
                f"codes such as {example} before and after it"
            )
        if then != codes:
            codes = then
            later.append((epoch, codes))
    return tuple(later)


def _is_codes_alone(rule: HaloRule) -> bool:
    forward, backward = (Rule(codec=way.codec) for way in (rule.forward, rule.backward))
    return rule == HaloRule(forward=forward, backward=backward) and not rule.is_adaptive


def _auto(text: str, answers: Mapping[Direction, Mapping[str, object]]) -> Auto | None:
    """Return the choice while training, if it was asked for."""
    found = [value[_CODEC] for value in answers.values() if isinstance(value.get(_CODEC), Auto)]
    if not found:
        return None
    if any(value != {_CODEC: found[0]} for value in answers.values()):
        raise InputError(
            f"--halo {text} says more than auto, which chooses the codes of both directions; write "
            "auto alone"
        )
    return cast("Auto", found[0])


def _parse_phase(text: str, start: int) -> HaloRule:
    """Read the words that hold until others take over, from a character on."""
    answers = HALO.read(text, start)
    if (auto := _auto(text, answers)) is not None:
        return HaloRule(auto=auto)
    warm_up = {way: found.get(_WARM_UP, 0) for way, found in answers.items()}
    if warm_up["fwd"] != warm_up["bwd"]:
        raise InputError(
            f"--halo {text} warms up in one direction of the pass only; write warmup before fwd: "
            "and bwd:"
        )
    return HaloRule(
        forward=_rule(answers["fwd"]),
        backward=_rule(answers["bwd"]),
        warm_up_epochs=cast("int", warm_up["fwd"]),
    )


def _rule(answers: Mapping[str, object]) -> Rule:
    """Return the rule of one direction."""
    fields = dict(answers)
    fields.pop(_WARM_UP, None)
    fields |= cast("dict[str, object]", fields.pop(_MEMORY, {}))
    if isinstance(fields.get(_DEAL), Gate):
        fields["gate"] = fields.pop(_DEAL)
    return Rule(**cast("dict[str, Any]", fields))


def parse_weights(text: str) -> WeightRule:
    """Read --weights.

    Args:
        text: Strategy in words: sum, or a codec such as int8, or every(4)+mean, or a preset.

    Returns:
        Rule of the weights that ranks tell each other.

    Raises:
        InputError: If the text is no strategy; it says where and what is allowed.
    """
    text = WEIGHTS.names.get(text, text)
    rules = [
        (epoch, _parse_weights(text[:stop], start))
        for epoch, start, stop in _phases("weights", text)
    ]
    phases = [(epoch, one.codec, one == replace(SUM, codec=one.codec)) for epoch, one in rules]
    return replace(rules[0][1], later=_later("weights", text, "sum or int4", phases))


def _parse_weights(text: str, start: int) -> WeightRule:
    """Read the words that hold until others take over, from a character on."""
    answers = WEIGHTS.read(text, start)["fwd"]
    if isinstance(answers.get(_CODEC), Auto):
        if set(answers) != {_CODEC}:
            raise InputError(
                f"--weights {text} says more than auto, which chooses the code of gradients; write "
                "auto alone"
            )
        return WeightRule(is_chosen=True)
    codec, apply = cast("CodecSpec", answers.get(_CODEC, EXACT)), answers.get(_APPLY)
    if _WHEN not in answers:
        if apply == _MEAN:
            raise InputError(
                f"--weights {text} takes the mean of models, but does not say when; add every(K)"
            )
        if _MOMENTS in answers:
            raise InputError(
                f"--weights {text} keeps the moments of models that are merged, but does not say "
                "when; add every(K), or drop own-moments"
            )
        if _TRAVEL in answers:
            raise InputError(
                f"--weights {text} moves the steps between merges of models, but does not say how "
                "many there are at first; add every(K)"
            )
        if _WHOM in answers:
            raise InputError(
                f"--weights {text} says with whom models are merged, but not when; add every(K)"
            )
        if _LAG in answers or isinstance(apply, Background):
            raise InputError(
                f"--weights {text} says how models move towards each other, but not when; add "
                "every(K)"
            )
        size = cast("int", answers.get(_MACHINES, 0))
        more = apply if isinstance(apply, dict) else {}
        return WeightRule(codec, machine_size=size, **more)
    if _MACHINES in answers:
        raise InputError(
            f"--weights {text} adds gradients up on machines first, but ranks that step by their "
            "own send none; drop machines"
        )
    said: dict[str, Any] = {"keeps_moments": _MOMENTS in answers}
    said["travel"] = answers.get(_TRAVEL)
    said |= cast("dict[str, Any]", answers[_WHEN]) | cast("dict[str, Any]", answers.get(_WHOM, {}))
    rule = WeightRule(**said)
    if rule.significance is not None:
        if set(answers) <= {_WHEN, _APPLY} and apply in (None, _SUM):
            return rule
        raise InputError(
            f"--weights {text} says more than changed, which adds single values of gradients up "
            f"as they are; use {rule.text}"
        )
    when = "every" if rule.gate is None else "changed-gradient"
    if isinstance(apply, dict):
        raise InputError(
            f"--weights {text} adds first moments up in every step, but {when} says when models "
            f"are merged; drop qadam or {when}"
        )
    if apply == _SUM:
        raise InputError(
            f"--weights {text} adds gradients up in every step, but {when} says when models are "
            f"merged; use {rule.text}, or drop {when}"
        )
    lag = cast("int", answers.get(_LAG, 0))
    _check_moves(text, rule, is_late=bool(lag) or isinstance(apply, Background))
    rule = _in_background(text, rule, apply, lag)
    if codec != EXACT and (rule.group_size or rule.background):
        raise InputError(
            f"--weights {text} codes how models changed since they were one, but in groups or "
            f"towards a center they never are; use every(K)+{codec.text}+mean, or drop {codec.text}"
        )
    return replace(rule, codec=codec)


def _check_moves(text: str, rule: WeightRule, *, is_late: bool) -> None:
    """Refuse other words about when models are merged beside steps that move, or that correct."""
    if rule.travel and (rule.gate or rule.corrections or is_late):
        raise InputError(
            f"--weights {text} moves the steps between merges, and says more of when models are "
            f"merged; use every(K)+{rule.travel.text}"
        )
    if rule.travel and rule.merge_every > rule.travel.every:
        raise InputError(
            f"--weights {text} lets models travel more often than they are merged; use at most "
            f"every({rule.travel.every}), or travel({rule.merge_every})"
        )
    if rule.corrections and (rule.is_ring or rule.group_size or is_late):
        raise InputError(
            f"--weights {text} corrects models in steps that all ranks take together; drop for="
            f"{rule.corrections}, or take the mean of all"
        )


def _in_background(text: str, rule: WeightRule, apply: object, lag: int) -> WeightRule:
    """Let merges take some steps, or models move towards a center."""
    how = apply if isinstance(apply, Background) else None
    if how is None:
        if lag:
            raise InputError(
                f"--weights {text} takes the mean of models {lag} steps late, but does not say "
                "what becomes of these steps; add corrected, lerp(A), elastic(A) or momentum(E)"
            )
        return rule
    words = replace(how, lag=lag).text
    if rule.gate is not None or rule.is_ring:
        what = "changed-gradient" if rule.gate is not None else "ring"
        raise InputError(
            f"--weights {text} moves models towards a center, which {what} does not; use "
            f"every(K)+{words}, or drop {words}"
        )
    if lag > rule.merge_every:
        raise InputError(
            f"--weights {text} lets a merge take {lag} steps, but the next one begins after "
            f"{rule.merge_every}; use every({lag}) or lag({rule.merge_every})"
        )
    if rule.group_size and how.keeps_center:
        raise InputError(
            f"--weights {text} has one center of all ranks, but groups that merge by themselves; "
            "use corrected or lerp(A), or all"
        )
    return replace(rule, background=replace(how, lag=lag))


def halo_text(rule: HaloRule) -> str:
    """Write the canonical words of --halo, which `parse_halo` reads.

    Args:
        rule: Rule of both directions.
    """
    if rule.auto is not None:
        return _auto_text(rule.auto)
    if rule.later:
        phases = [halo_text(replace(rule, later=()))]
        for epoch, codecs in rule.later:
            then = HaloRule(
                forward=Rule(codec=codecs.forward), backward=Rule(codec=codecs.backward)
            )
            phases += [f"at({epoch})", halo_text(then)]
        return "+".join(phases)
    forward, backward = (_items(way) for way in (rule.forward, rule.backward))
    items = [f"warmup({rule.warm_up_epochs})"] * (rule.warm_up_epochs > 0)
    if forward == backward:
        items += forward
    else:
        for way, own in (("fwd", forward), ("bwd", backward)):
            items += [f"{way}:{own[0]}", *own[1:]] if own else []
    return "+".join(items) or EXACT.text


def _auto_text(auto: Auto) -> str:
    said = [
        f"{name}={value:g}"
        for name, value, usual in (
            ("loss", auto.loss, Auto.loss),
            ("every", auto.every, Auto.every),
        )
        if value != usual
    ] + ["start=graph"] * (not auto.may_start)
    return f"auto({','.join(said)})" if said else "auto"


def _items(rule: Rule) -> list[str]:
    """Return the words of one direction; none where rows travel as they are, in every epoch."""
    deal, items = rule.deal, []
    if deal.period == 0:
        items.append("never")
    elif deal.how == "together":
        more = "" if deal.open_for == 1 else f",for={deal.open_for}"
        items.append(f"every({deal.period}{more})")
    elif deal != Rota():
        items.append(f"bins({deal.period}{'' if deal.how == 'rows' else f',deal={deal.how}'})")
    items += _choices(rule)
    items += [f"delay({rule.delay})"] * (rule.delay > 0)
    items += [f"refresh({rule.refresh})"] * (rule.refresh > 0)
    items += [rule.codec.text] * (rule.codec != EXACT)
    items += {"error": ["feedback"], "value": ["delta"]}.get(rule.remembers, [])
    if not rule.is_cached:
        items.append("drop")
    elif rule.smoothing:
        items.append(f"smooth({rule.smoothing:g})")
    items += ["trend"] * rule.has_trend
    return items + ["scale"] * rule.is_scaled


def _choices(rule: Rule) -> list[str]:
    """Return the words that let values of rows decide what travels."""
    items = []
    if rule.gate is not None:
        most = f",most={rule.gate.most}" if rule.gate.most else ""
        items.append(f"gate({rule.gate.arguments}{most})")
    if rule.spared is not None and rule.spared.limit:
        items.append(f"budget({rule.spared.limit:.12g})")
    elif rule.spared is not None and rule.spared.threshold is None:
        items.append(f"best({rule.spared.best_of})")
    elif rule.spared is not None:
        decay = ",decay=sqrt" if rule.spared.decays else ""
        items.append(f"changed({rule.spared.threshold:.12g}{decay})")
    return items


def weights_text(rule: WeightRule) -> str:
    """Write the canonical words of --weights, which `parse_weights` reads.

    Args:
        rule: Rule of the weights that ranks tell each other.
    """
    return rule.text
