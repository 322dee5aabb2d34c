"""Fields of dataclasses that are flags: their parser, their checks and their comparison.

A setting is written once, as a field with `flag`. Everything else follows from its type and from
what `flag` says. No module of this room imports torch, as `distgnn --help` loads them all.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from distgnn.datasets.errors import InputError
from distgnn.settings.kinds import MAX_COUNT, number, switch, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_MOST_SHOWN = 6


@dataclass(frozen=True)
class Bound:
    """Condition on the value of a setting.

    Attributes:
        text: End of the sentence "FLAG must be ...".
        holds: Whether a value is allowed.
        least: Smallest whole number that is allowed, if there is one.
        most: Largest whole number that is allowed, if there is one.
    """

    text: str
    holds: Callable[[Any], bool]
    least: int | None = None
    most: int | None = None


SHARE = Bound("at least 0 and below 1", lambda value: 0 <= value < 1)
POSITIVE = Bound("positive and finite", lambda value: 0 < value < float("inf"))
NOT_NEGATIVE = Bound("at least 0 and finite", lambda value: 0 <= value < float("inf"))
FINITE = Bound("finite", lambda value: abs(value) < float("inf"))


def at_least(least: int) -> Bound:
    """Return the condition that a whole number is not smaller than another one.

    Args:
        least: Smallest value that is allowed.
    """
    return Bound(f"at least {least}", lambda value: value >= least, least=least)


@dataclass(frozen=True)
class Flag:
    """Description of a setting besides its name, its type and its default.

    Attributes:
        text: Help of the flag.
        metavar: Name of the value in the help.
        choices: Names that are allowed, instead of those that the type lists.
        bounds: Conditions on the value.
        varies: Whether the default depends on other settings where the flag is left out.
        usual: Value of a setting that presets may set, where neither the flag nor a preset is
            given; None of other settings.
        is_free: Whether a run that is resumed may change it.
        is_predicted: Whether it decides what an epoch computes and sends, so that the verbs that
            predict an epoch take it, too.
        is_optional: Whether a run may have no value, which is None.
        is_common: Whether the short help of a verb shows it.
    """

    text: str
    metavar: str | None
    choices: tuple[str, ...]
    bounds: tuple[Bound, ...]
    varies: bool
    usual: Any
    is_free: bool
    is_predicted: bool
    is_optional: bool
    is_common: bool


def flag(
    default: Any,
    text: str,
    *bounds: Bound,
    metavar: str | None = None,
    choices: tuple[str, ...] = (),
    varies: bool = False,
    in_presets: bool = False,
    is_free: bool = False,
    is_predicted: bool = False,
    is_optional: bool = False,
    is_common: bool = False,
) -> Any:
    """Make a field of a dataclass that is also a flag.

    Args:
        default: Value where the flag is left out.
        text: Help of the flag.
        bounds: Conditions on the value.
        metavar: Name of the value in the help.
        choices: Names that are allowed, instead of those that the type lists.
        varies: Whether the default depends on other settings.
        in_presets: Whether presets may set it. The field is None then where it was not given, so
            that the default, given beside a preset that says otherwise, is not lost.
        is_free: Whether a run that is resumed may change it.
        is_predicted: Whether the verbs that predict an epoch take it.
        is_optional: Whether a run may have no value, which is None.
        is_common: Whether the short help of a verb shows it.

    Returns:
        The field.
    """
    usual = default if in_presets else None
    about = Flag(
        *(text, metavar, choices, bounds, varies or in_presets, usual),
        *(is_free, is_predicted, is_optional, is_common),
    )
    return field(default=None if in_presets else default, metadata={"flag": about})


@dataclass(frozen=True)
class Setting:
    """One field, as the functions below read it.

    Attributes:
        name: Name of the field.
        kind: Type of its values: int, float, bool or str.
        choices: Values that are allowed, where they are names.
        default: Value where it is left out, and no preset is given.
        about: Description that `flag` gives; None for a field that is no flag.
    """

    name: str
    kind: type
    choices: tuple[str, ...]
    default: Any
    about: Flag | None

    @property
    def flag(self) -> str:
        """Word of the command line."""
        return flag_of(self.name)

    @property
    def is_plain(self) -> bool:
        """Whether the flag has no value: it is off by default."""
        return self.kind is bool and self.default is False


def flag_of(name: str) -> str:
    """Return the word of the command line that sets a field."""
    return "--" + name.replace("_", "-")


@cache
def settings_of(owner: type) -> tuple[Setting, ...]:
    """Return the settings of a dataclass, in order; fields that are dataclasses are left out.

    Args:
        owner: The dataclass; the types of its settings are int, float, bool, str or `Literal`,
            with None where the default depends on other settings.
    """
    hints = get_type_hints(owner)
    found = []
    for item in fields(owner):
        about = item.metadata.get("flag")
        hint = hints[item.name]
        plain = [part for part in get_args(hint) if part is not NoneType]
        if NoneType in get_args(hint):
            (hint,) = plain
        choices = () if get_origin(hint) is None else get_args(hint)
        kind = str if choices else hint
        choices = (about.choices if about else ()) or choices
        if kind in (int, float, bool, str):
            usual = None if about is None else about.usual
            default = item.default if usual is None else usual
            found.append(Setting(item.name, kind, choices, default, about))
    return tuple(found)


def add_flags(
    group: argparse._ArgumentGroup,
    *owners: type,
    is_predicting: bool = False,
    changed: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Add the flags of dataclasses to a parser.

    Args:
        group: Group of the verb's arguments.
        owners: The dataclasses.
        is_predicting: Whether to add only those that the verbs that predict an epoch take.
        changed: Arguments for argparse that a verb has of its own, by name of the field.
    """
    for owner in owners:
        for setting in settings_of(owner):
            about = setting.about
            if about is None or (is_predicting and not about.is_predicted):
                continue
            options = _options(setting, about) | dict((changed or {}).get(setting.name, {}))
            group.add_argument(setting.flag, **options)


def common_flags(*owners: type) -> list[str]:
    """Return the words of the flags that the short help of a verb shows.

    Args:
        owners: Dataclasses of settings.
    """
    return [
        setting.flag
        for owner in owners
        for setting in settings_of(owner)
        if setting.about is not None and setting.about.is_common
    ]


def group_of(owner: type) -> str:
    """Return the title of the flags of a dataclass: its `GROUP`.

    Args:
        owner: The dataclass.
    """
    title: str = vars(owner)["GROUP"]
    return title


def _options(setting: Setting, about: Flag) -> dict[str, Any]:
    """Return what argparse is told of a flag."""
    default = None if about.varies else setting.default
    options: dict[str, Any] = {"default": default, "help": about.text}
    if setting.is_plain:
        return {**options, "action": argparse.BooleanOptionalAction}
    if setting.kind is bool:
        return {**options, "type": switch, "metavar": "on|off"}
    if about.metavar is not None:
        options["metavar"] = about.metavar
    if setting.kind is float:
        options["type"] = number
    if setting.kind is int:
        least = max((bound.least for bound in about.bounds if bound.least is not None), default=0)
        most = min(
            (bound.most for bound in about.bounds if bound.most is not None), default=MAX_COUNT
        )
        options["type"] = whole(least, most)
    return options


def picked(values: Mapping[str, Any], owner: type) -> dict[str, Any]:
    """Return the values of the settings of a dataclass, without those that are None.

    Args:
        values: Values by name, perhaps with others, which are ignored.
        owner: The dataclass.
    """
    names = [setting.name for setting in settings_of(owner)]
    return {name: values[name] for name in names if values.get(name) is not None}


def check_values(owner: object, *, but: tuple[str, ...] = ()) -> None:
    """Check every setting by itself.

    Args:
        owner: A dataclass. Values that are None are not checked.
        but: Fields to leave out.

    Raises:
        InputError: If a value is not allowed; it names the flag.
    """
    kind: Any = type(owner)
    for setting in settings_of(kind):
        value = getattr(owner, setting.name)
        if value is None or setting.name in but:
            continue
        if setting.choices and value not in setting.choices:
            names = ", ".join(setting.choices)
            raise InputError(f"{setting.flag} must be one of {names}, got '{value}'")
        for bound in () if setting.about is None else setting.about.bounds:
            if not bound.holds(value):
                raise InputError(f"{setting.flag} must be {bound.text}, got {value}")


def _few(names: list[str]) -> list[str]:
    """Return names of which there are few, or the first ones and three dots."""
    return names if len(names) <= _MOST_SHOWN else [*names[:_MOST_SHOWN], "..."]


def check_types(owner: type, values: Any, *, besides: Iterable[str] = ()) -> None:
    """Check the names and the types of settings that were read from JSON.

    Args:
        owner: The dataclass.
        values: Parsed JSON.
        besides: Other fields, which are not checked.

    Raises:
        InputError: If a setting is missing, unknown or of another type.
    """
    expected = {setting.name: setting.kind for setting in settings_of(owner)}
    optional = {s.name for s in settings_of(owner) if s.about is not None and s.about.is_optional}
    names = {*expected, *besides}
    if not isinstance(values, dict) or set(values) != names:
        # Named are those that differ: all of them would be a page.
        is_table = isinstance(values, dict)
        lacking = sorted(names - set(values) if is_table else names)
        got = [key for key in values if key not in names] if is_table else values
        shown = lacking or [*sorted(names), "..."]
        raise InputError(
            f"the run's configuration must have the fields {_few(shown)}, got {got} "
            f"{'instead' if lacking else 'besides'}; it was written by another version or altered: "
            "train again"
        )
    for name, kind in expected.items():
        # Where a fraction is expected, JSON may hold a whole number; true is no number.
        value = values[name]
        if value is None and name in optional:
            continue
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise InputError(
                f"the run's configuration holds {value!r} for {name}, which must be of type "
                f"{kind.__name__}; it was altered: train again"
            )


def differences(begun: object, now: object) -> Iterator[str]:
    """Compare the settings of a run that is resumed with those that it was begun with.

    Args:
        begun: A dataclass.
        now: Another one of the same class.

    Yields:
        A phrase for each setting that differs and may not.
    """
    kind: Any = type(begun)
    for setting in settings_of(kind):
        then, given = getattr(begun, setting.name), getattr(now, setting.name)
        is_free = setting.about is not None and setting.about.is_free
        if then != given and not is_free:
            yield f"{setting.name} (begun with {then}, now {given})"
