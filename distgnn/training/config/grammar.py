"""Strategies in words, such as `int8` or `fwd:int8+bwd:int4(round=near)`.

    strategy  = item { "+" item }
    item      = [ direction ":" ] word [ "(" argument { "," argument } ")" ]
    argument  = [ key "=" ] value
    direction = "fwd" | "bwd"

A direction holds until the next one is named; without one an item is for both. The parser knows no
word: a `Grammar` is a table of them, in which a new word is a row. Blanks between tokens do not
count.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

Direction = Literal["fwd", "bwd"]

_DIRECTIONS: tuple[Direction, ...] = ("fwd", "bwd")
_TOKEN = re.compile(r"[A-Za-z0-9_.|%/-]+")
_BLANK = re.compile(r"\s*")


class Argument(NamedTuple):
    """Argument of an item, as it was written.

    Attributes:
        key: Word before "="; empty for a value alone.
        value: Word after it.
        at: Position of the argument in the text, from 0.
    """

    key: str
    value: str
    at: int


class Item(NamedTuple):
    """Item of a strategy, as it was written.

    Attributes:
        directions: Directions of the pass that it is for.
        word: Its name.
        arguments: Its arguments, in order.
        text: The item as it stands in the text.
        at: Position of the name in the text, from 0.
    """

    directions: tuple[Direction, ...]
    word: str
    arguments: tuple[Argument, ...]
    text: str
    at: int


@dataclass(frozen=True)
class Parameter:
    """Parameter of a word.

    Attributes:
        values: Value by the word that stands for it; empty for numbers.
        number: Type of a number.
        least: Least number that is allowed.
        above: Bound that a number is above; None for none.
        below: Bound that a number is below; None for none.
        is_required: Whether the word is nothing without it.
    """

    values: Mapping[str, object] = field(default_factory=dict)
    number: type[int] | type[float] = int
    least: float = 0
    below: float | None = None
    above: float | None = None
    is_required: bool = False

    @property
    def allowed(self) -> str:
        """Words that are allowed, for a message."""
        if self.values:
            return " or ".join(self.values)
        what = "a whole number" if self.number is int else "a number"
        below = "" if self.below is None else f" and below {self.below:g}"
        least = f"of at least {self.least:g}" if self.above is None else f"above {self.above:g}"
        return f"{what} {least}{below}"

    @property
    def example(self) -> str:
        """A word that is allowed, for a message."""
        least = self.least
        if self.above is not None:
            least = self.above + 1 if self.below is None else (self.above + self.below) / 2
        return next(iter(self.values), f"{least:g}")

    def read(self, word: str) -> object:
        """Return the value that a word stands for.

        Args:
            word: The word.

        Raises:
            ValueError: If it is not allowed.
        """
        if self.values:
            if word not in self.values:
                raise ValueError(word)
            return self.values[word]
        value = self.number(word)
        if not value >= self.least or (self.below is not None and not value < self.below):
            raise ValueError(word)
        if self.above is not None and not value > self.above:
            raise ValueError(word)
        return value


@dataclass(frozen=True)
class Word:
    """Row of a grammar's table.

    Attributes:
        slot: Question that the word answers; a strategy answers each once.
        build: Makes the answer from the arguments that were given, by key.
        parameters: Parameters by key; that of the empty key is a value alone, which `build` gets
            as `value`.
        is_synonym: Whether the messages list another word instead.
    """

    slot: str
    build: Callable[..., object]
    parameters: Mapping[str, Parameter]
    is_synonym: bool = False

    @property
    def takes(self) -> str:
        """Arguments that it takes, for a message."""
        return ", ".join(key or parameter.allowed for key, parameter in self.parameters.items())


@dataclass(frozen=True)
class Grammar:
    """Words of one flag.

    Attributes:
        flag: Flag of the command line, for messages.
        slots: Questions that words answer, by slot, such as "what rows are sent as".
        words: The table.
        has_directions: Whether items may be for one direction of the pass.
        names: Whole strategies by name.
        silent: Names of presets that say nothing of this flag.
    """

    flag: str
    slots: Mapping[str, str]
    words: Mapping[str, Word]
    has_directions: bool = True
    names: Mapping[str, str] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()

    def read(self, text: str, start: int = 0) -> dict[Direction, dict[str, object]]:
        """Read a strategy.

        Args:
            text: The strategy in words, or its name.
            start: Character that it begins at; those before are for messages.

        Returns:
            The answers by slot, for either direction; without those that the text leaves out.

        Raises:
            InputError: If the text is no strategy; it says where, what is allowed, and the nearest
                word.
        """
        answers: dict[Direction, dict[str, object]] = {way: {} for way in _DIRECTIONS}
        said: dict[tuple[Direction, str], Item] = {}
        for item in _Parser(self, self.names.get(text, text), start).strategy():
            word = self._word(item)
            answer = word.build(**self._arguments(item, word))
            for way in item.directions:
                if (way, word.slot) in said:
                    raise InputError(
                        f"{self.flag} {said[way, word.slot].text}+{item.text} says twice "
                        f"{self.slots[word.slot]}; keep one"
                    )
                said[way, word.slot] = item
                answers[way][word.slot] = answer
        return answers

    def _word(self, item: Item) -> Word:
        if item.word in self.words:
            return self.words[item.word]
        if item.word in self.names:
            raise InputError(
                f"{self.flag} {item.word}{_where(item.at)} is the name of a whole strategy, "
                f"{self.names[item.word]}; write it alone"
            )
        if item.word in self.silent:
            raise InputError(
                f"{self.flag} {item.word}{_where(item.at)} is the name of a preset that says "
                f"nothing of {self.flag}; use --preset {item.word}"
            )
        lists = (
            f"{question}: {', '.join(self._words_of(slot))}"
            for slot, question in self.slots.items()
        )
        raise InputError(
            f"{self.flag} has no item '{item.word}'{_where(item.at)}"
            f"{_nearest(item.word, [*self.words, *self.names])}; {'; '.join(lists)}"
        )

    def _words_of(self, slot: str) -> list[str]:
        return [
            name for name, word in self.words.items() if word.slot == slot and not word.is_synonym
        ]

    def _arguments(self, item: Item, word: Word) -> dict[str, object]:
        values: dict[str, object] = {}
        for argument in item.arguments:
            key, shown = argument.key, argument.key or argument.value
            where = f"'{shown}'{_where(argument.at)}"
            if not word.parameters:
                raise InputError(
                    f"{self.flag} {item.word} takes no arguments, got {where}; write {item.word}"
                )
            if key not in word.parameters:
                raise InputError(
                    f"{self.flag} {item.word} has no argument {where}"
                    f"{_nearest(key, word.parameters)}; it takes {word.takes}"
                )
            if key in values:
                raise InputError(f"{self.flag} {item.word} has the argument {where} twice")
            parameter = word.parameters[key]
            try:
                values[key] = parameter.read(argument.value)
            except ValueError as error:
                given, name = (f"{key}=", key) if key else ("", "it")
                raise InputError(
                    f"{self.flag} {item.word} has {given}{argument.value}{_where(argument.at)}"
                    f"{_nearest(argument.value, parameter.values)}; {name} is {parameter.allowed}"
                ) from error
        for key, parameter in word.parameters.items():
            if parameter.is_required and key not in values:
                raise InputError(
                    f"{self.flag} {item.word}{_where(item.at)} needs {parameter.allowed}; write "
                    f"{item.word}({parameter.example})"
                )
        return {key or "value": value for key, value in values.items()}


def _where(at: int) -> str:
    """Name a place of a text; nothing at its beginning, which needs no name."""
    return f" at character {at + 1}" if at else ""


def _nearest(word: str, known: Collection[str]) -> str:
    """Suggest the known word that is nearest, if one is nearer than all others."""
    close = difflib.get_close_matches(word.lower(), known, n=2, cutoff=0.6)
    ratios = [difflib.SequenceMatcher(None, word.lower(), other).ratio() for other in close]
    if not close or (len(close) > 1 and ratios[0] == ratios[1]):
        return ""
    return f" (did you mean {close[0]}?)"


class _Parser:
    """Recursive parser: one method for each rule of the grammar.

    Args:
        grammar: Grammar of the text.
        text: The text.
        start: Character that the strategy begins at.
    """

    def __init__(self, grammar: Grammar, text: str, start: int = 0) -> None:
        self._flag = grammar.flag
        self._has_directions = grammar.has_directions
        self._text = text
        self._at = start

    def strategy(self) -> list[Item]:
        """Read items up to the end of the text."""
        directions: tuple[Direction, ...] = _DIRECTIONS
        items: list[Item] = []
        while True:
            items.append(self._item(directions))
            directions = items[-1].directions
            if self._is_over:
                return items
            self._expect("+", "'+' or the end")

    def _item(self, directions: tuple[Direction, ...]) -> Item:
        start, word = self._token("a word")
        at = start
        if self._has(":"):
            directions = self._direction(word, start)
            at, word = self._token("a word")
        arguments: list[Argument] = []
        if self._has("("):
            arguments.append(self._argument())
            while not self._has(")"):
                self._expect(",", "',' or ')'")
                arguments.append(self._argument())
        return Item(directions, word, tuple(arguments), self._text[start : self._at], at)

    def _direction(self, word: str, at: int) -> tuple[Direction, ...]:
        if not self._has_directions:
            raise InputError(
                f"{self._flag} has no directions, got '{word}:'{_where(at)}; leave it out"
            )
        for way in _DIRECTIONS:
            if word == way:
                return (way,)
        raise InputError(
            f"{self._flag} has no direction '{word}'{_where(at)}{_nearest(word, _DIRECTIONS)}; "
            "use fwd for rows and sums, bwd for gradients, or none for both"
        )

    def _argument(self) -> Argument:
        at, word = self._token("a key or a value")
        if not self._has("="):
            return Argument("", word, at)
        _, value = self._token("a value")
        return Argument(word, value, at)

    def _token(self, what: str) -> tuple[int, str]:
        self._skip_blanks()
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            raise self._unexpected(what)
        self._at = found.end()
        return found.start(), found[0]

    def _has(self, mark: str) -> bool:
        """Step over a mark if it is next."""
        start = self._at
        self._skip_blanks()
        if self._text.startswith(mark, self._at):
            self._at += len(mark)
            return True
        self._at = start
        return False

    def _expect(self, mark: str, what: str) -> None:
        if not self._has(mark):
            self._skip_blanks()
            raise self._unexpected(what)

    @property
    def _is_over(self) -> bool:
        self._skip_blanks()
        return self._at == len(self._text)

    def _skip_blanks(self) -> None:
        found = _BLANK.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _unexpected(self, what: str) -> InputError:
        if self._at == len(self._text):
            return InputError(f"{self._flag} '{self._text}' ends where {what} is expected")
        return InputError(
            f"{self._flag} '{self._text}' has '{self._text[self._at]}' at character "
            f"{self._at + 1}, where {what} is expected"
        )
