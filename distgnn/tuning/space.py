"""Search spaces: the values that each setting may take."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from distgnn.datasets.errors import InputError
from distgnn.settings.fields import Setting, flag_of, settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.random import Generator

_FORM = re.compile(r"(log|uniform|int|choice)\((.*)\)", re.DOTALL)
# Trials that differ in one of these are scored by different things.
_COMPARED = ("goal", "metric", "select_by", "split_index", "task")
_HOW = "write NAME=log(1e-4,1e-1), uniform(0,0.6), int(2,4) or choice(16,32,64)"


class Values(Protocol):
    """Values that a setting may take."""

    def sample(self, random: Generator) -> Any:
        """Draw one value."""

    def all(self) -> list[Any] | None:
        """Return all values in order; None if there are too many to list."""

    def near(self, value: Any, random: Generator) -> Any:
        """Return a value near another one: a fifth larger or smaller, or the next choice."""


@dataclass(frozen=True)
class Numbers:
    """Real numbers between two bounds.

    Attributes:
        low: Smallest number.
        high: Largest number.
        is_log: Whether the logarithm is spread evenly, not the number.
    """

    low: float
    high: float
    is_log: bool = False

    def sample(self, random: Generator) -> float:
        """Draw one value."""
        if not self.is_log:
            return float(random.uniform(self.low, self.high))
        drawn = math.exp(random.uniform(math.log(self.low), math.log(self.high)))
        return min(max(drawn, self.low), self.high)

    def all(self) -> list[Any] | None:
        """Return None: there are too many to list."""
        return None

    def near(self, value: Any, random: Generator) -> float:
        """Return a value that is a fifth larger or smaller, within the bounds."""
        return float(min(max(value * random.choice((0.8, 1.2)), self.low), self.high))


@dataclass(frozen=True)
class WholeNumbers:
    """Whole numbers between two bounds.

    Attributes:
        low: Smallest number.
        high: Largest number.
    """

    low: int
    high: int

    def sample(self, random: Generator) -> int:
        """Draw one value."""
        return int(random.integers(self.low, self.high, endpoint=True))

    def all(self) -> list[Any] | None:
        """Return all values in order."""
        return list(range(self.low, self.high + 1))

    def near(self, value: Any, random: Generator) -> int:
        """Return a value that is a fifth, and at least one, larger or smaller."""
        step = max(1, round(0.2 * abs(value)))
        return int(min(max(value + step * random.choice((-1, 1)), self.low), self.high))


@dataclass(frozen=True)
class Choice:
    """Values in a list.

    Attributes:
        values: The list.
    """

    values: tuple[Any, ...]

    def sample(self, random: Generator) -> Any:
        """Draw one value."""
        return self.values[int(random.integers(len(self.values)))]

    def all(self) -> list[Any] | None:
        """Return all values in order."""
        return list(self.values)

    def near(self, value: Any, random: Generator) -> Any:
        """Return the value before or after."""
        place = self.values.index(value) + int(random.choice((-1, 1)))
        return self.values[min(max(place, 0), len(self.values) - 1)]


class Space:
    """Settings that are searched.

    Args:
        values: Values that each setting may take, by its name.

    Attributes:
        values: The same.
    """

    def __init__(self, values: Mapping[str, Values]) -> None:
        self.values = dict(values)

    @classmethod
    def of(cls, search: Mapping[str, Any]) -> Space:
        """Read a space from the keywords of `distgnn.tune`.

        Args:
            search: For each setting a text such as "log(1e-4,1e-1)", or a list of values.

        Returns:
            The space.

        Raises:
            InputError: If a setting is unknown, or its values cannot be read or are not allowed.
        """
        if not search:
            raise InputError(f"tune needs a setting to search; give --search, and {_HOW}")
        known = _settings()
        found = {}
        for key, given in search.items():
            setting = known.get(key.replace("-", "_"))
            if setting is None:
                raise InputError(
                    f"--search {key}: train has no such setting; see distgnn train --help"
                )
            if setting.name in _COMPARED:
                raise InputError(
                    f"--search {key}: trials that differ in {setting.flag} cannot be compared; "
                    "give it one value, outside of --search"
                )
            found[setting.name] = _values_of(setting, given)
        return cls(found)

    @staticmethod
    def parse(words: Sequence[str]) -> dict[str, str]:
        """Split words of the command line into names and texts of values.

        Args:
            words: Words such as "lr=log(1e-4,1e-1)".

        Raises:
            InputError: If a word has no name, or a name is there twice.
        """
        found: dict[str, str] = {}
        for word in words:
            name, is_pair, text = word.partition("=")
            if not is_pair or not name:
                raise InputError(f"--search {word}: a setting and its values are missing; {_HOW}")
            if name in found:
                raise InputError(f"--search {name} was given twice; give each setting once")
            found[name] = text
        return found

    @property
    def grid(self) -> list[dict[str, Any]]:
        """All settings of the space, in order.

        Raises:
            InputError: If a setting may take any number between two bounds.
        """
        lists = {}
        for name, values in self.values.items():
            found = values.all()
            if found is None:
                raise InputError(
                    f"--sampler grid needs values that can be listed, but {flag_of(name)} is any "
                    "number between two bounds; write choice(...), or use --sampler random"
                )
            lists[name] = found
        return [
            dict(zip(lists, combination, strict=True))
            for combination in itertools.product(*lists.values())
        ]


def _settings() -> dict[str, Setting]:
    """Return the settings that a search may change: flags of the model and of its training."""
    from distgnn.nn.config import ModelConfig
    from distgnn.training.config.settings import TrainConfig

    settings = (*settings_of(ModelConfig), *settings_of(TrainConfig))
    # The scheduler decides the number of epochs.
    return {s.name: s for s in settings if s.about is not None and s.name != "epochs"}


def _values_of(setting: Setting, given: Any) -> Values:
    key = setting.name
    if not isinstance(given, str):
        if not isinstance(given, list | tuple) or not given:
            raise InputError(
                f"search of {key} must be a text or a list of values, got {given!r}; "
                'write {"lr": "log(1e-4,1e-1)", "hidden": [16, 32]}'
            )
        return Choice(tuple(_converted(setting, value) for value in given))
    form = _FORM.fullmatch(given.strip())
    if form is None:
        raise InputError(f"--search {key}={given}: no such form; {_HOW}")
    words = split_words(form[2])
    if form[1] == "choice":
        if not all(words):
            raise InputError(f"--search {key}={given}: a value is empty; {_HOW}")
        return Choice(tuple(_converted(setting, word) for word in words))
    wanted = int if form[1] == "int" else float
    if setting.kind is not wanted:
        kind = {int: "a whole number", float: "a number"}.get(setting.kind, "a name or a switch")
        raise InputError(
            f"--search {key}={given}: {flag_of(key)} takes {kind}; use "
            f"{ {int: 'int(LOW,HIGH)', float: 'log(LOW,HIGH)'}.get(setting.kind, 'choice(...)') }"
        )
    if len(words) != 2:
        raise InputError(f"--search {key}={given}: {form[1]} takes two bounds, got {len(words)}")
    low, high = (_converted(setting, word) for word in words)
    if not low < high:
        raise InputError(f"--search {key}={given}: the first bound must be below the second")
    if form[1] == "int":
        return WholeNumbers(low, high)
    if form[1] == "log" and not low > 0:
        raise InputError(f"--search {key}={given}: a logarithmic range starts above 0")
    return Numbers(low, high, is_log=form[1] == "log")


def split_words(text: str) -> list[str]:
    """Split a text at its commas, except those inside brackets.

    Args:
        text: Text such as "int8, int4(round=near)".
    """
    words, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            words.append("")
        else:
            words[-1] += character
    return [word.strip() for word in words]


def _converted(setting: Setting, value: Any) -> Any:
    """Convert one value to the kind of its setting, and check it alone."""
    problem = f"--search {setting.name}: {value!r} is not allowed"
    if setting.kind is bool:
        switches = {"on": True, "off": False, "true": True, "false": False}
        found: Any = switches.get(value) if isinstance(value, str) else value
        if not isinstance(found, bool):
            raise InputError(f"{problem}; use on or off")
        return found
    try:
        is_cut_off = setting.kind is int and isinstance(value, float) and not value.is_integer()
        found = None if isinstance(value, bool) or is_cut_off else setting.kind(value)
    except (ValueError, TypeError):
        found = None
    if found is None or (setting.kind is float and not math.isfinite(found)):
        kind = {int: "a whole number", float: "a number"}.get(setting.kind, "a text")
        raise InputError(f"{problem}; {setting.flag} takes {kind}")
    if setting.choices and found not in setting.choices:
        raise InputError(f"{problem}; {setting.flag} is one of {', '.join(setting.choices)}")
    for bound in () if setting.about is None else setting.about.bounds:
        if not bound.holds(found):
            raise InputError(f"{problem}; {setting.flag} must be {bound.text}")
    return found
