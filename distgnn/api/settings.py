"""Settings: keywords of the verbs, checked and sorted into what they configure."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import reprlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from distgnn.training.config.settings import TrainConfig

ALL = "all"
"""The value of split_index that trains a run on each split."""
_KINDS = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "True or False"),
}
# A million numbers or so.
_WEIGHTS_BYTES = 1 << 24
_SWITCH = {"on": True, "off": False}


_FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)")


@contextmanager
def naming_arguments(names: Collection[str]) -> Iterator[None]:
    """Let errors name the arguments of a function instead of flags of the command line.

    Args:
        names: Names of the arguments; other flags stay as they are.
    """

    def argument(found: re.Match[str]) -> str:
        name = found[1].replace("-", "_")
        return name if name in names else found[0]

    try:
        yield
    except InputError as error:
        raise InputError(_FLAG.sub(argument, str(error))) from error


def config_of(values: Mapping[str, Any]) -> TrainConfig:
    """Build the configuration of a run.

    Args:
        values: Settings by name: fields of the model and of its training, and perhaps others, which
            are ignored. Those that are missing or None are as by default.

    Returns:
        The checked configuration.

    Raises:
        InputError: If a value is not allowed.
    """
    from distgnn.training.config.settings import TrainConfig

    if values.get("split_index") == ALL:
        values = {**values, "split_index": 0}  # of the first run
    return TrainConfig.of(values)


def config_from(words: Keywords) -> TrainConfig:
    """Build the configuration of a run from keywords.

    Args:
        words: Keywords of a verb.

    Returns:
        The checked configuration.

    Raises:
        InputError: If a value is not allowed.
    """
    from distgnn.nn.config import ModelConfig
    from distgnn.training.config.settings import TrainConfig

    training = words.fields_of(TrainConfig, but=("model",))
    return config_of({**training, **words.fields_of(ModelConfig, but=("own",))})


class Keywords:
    """Keywords of a verb, each of which must be used.

    Args:
        verb: Name of the verb, for messages.
        values: The keywords; None stands for the default.
    """

    def __init__(self, verb: str, values: Mapping[str, Any]) -> None:
        self._verb = verb
        self._values = {name: value for name, value in values.items() if value is not None}
        self._known: set[str] = set()

    def fields_of(self, owner: type, *, but: Iterable[str] = ()) -> dict[str, Any]:
        """Return the keywords that are fields of a dataclass, checked for their types.

        Args:
            owner: The dataclass.
            but: Fields that are no keywords.

        Raises:
            InputError: If a value is of another type.
        """
        fields = [item for item in dataclasses.fields(owner) if item.name not in but]
        self._known |= {item.name for item in fields}
        return {
            item.name: checked(item.name, self._values[item.name], str(item.type))
            for item in fields
            if item.name in self._values
        }

    def take(self, name: str, default: Any = None) -> Any:
        """Return the value of one keyword.

        Args:
            name: Name of the keyword.
            default: Value if it was not given.
        """
        self._known.add(name)
        return self._values.get(name, default)

    def take_checked(self, name: str, kind: str, default: Any = None) -> Any:
        """Return the value of one keyword, checked for its type.

        Args:
            name: Name of the keyword.
            kind: bool, int, float or str.
            default: Value if it was not given.

        Raises:
            InputError: If the value is of another type.
        """
        value = self.take(name)
        return default if value is None else checked(name, value, kind)

    def refuse_others(self, more: Iterable[str] = ()) -> None:
        """Refuse keywords that nobody asked for.

        Args:
            more: Parameters of the verb that are spelled out, to suggest them.

        Raises:
            InputError: If there are such; names the nearest keyword.
        """
        for name in self._values:
            if name not in self._known:
                close = difflib.get_close_matches(name, [*self._known, *more], n=1)
                hint = f"did you mean {close[0]}?" if close else f"see help(distgnn.{self._verb})"
                raise InputError(f"{self._verb} has no setting '{name}'; {hint}")


def _weights_text(value: Any) -> str:
    """Return weights of classes as the configuration holds them, whatever becomes of their file."""
    if isinstance(value, str | os.PathLike):
        text = os.fspath(value)
        if not os.path.isfile(text):  # noqa: PTH113 # Path.is_file fails on long lists of numbers
            return text
        size = Path(text).stat().st_size
        if size > _WEIGHTS_BYTES:
            raise InputError(
                f"class_weights '{text}' has {size} bytes, more than {_WEIGHTS_BYTES}; give a text "
                "file with a number for each class"
            )
        try:
            value = Path(text).read_text().replace(",", " ").split()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"class_weights '{text}' cannot be read ({error}); give a text file with a number "
                "for each class"
            ) from error
    try:
        return ",".join(str(float(weight)) for weight in value)
    except (TypeError, ValueError):
        raise InputError(
            f"class_weights must be a text, a file or a list of numbers, got {reprlib.repr(value)}"
        ) from None


def checked(name: str, value: Any, annotation: str) -> Any:
    """Check the type of a value, as far as its field tells: a name is checked with the others.

    Args:
        name: Name of the argument.
        value: Its value.
        annotation: Type of the field in words, such as "int | None".

    Returns:
        The value; a number of numpy as one of Python, a path as a text, "on" and "off" as True and
        False.

    Raises:
        InputError: If it is of another type.
    """
    if name == "split_index" and value == ALL:
        return value
    if name == "class_weights":
        return _weights_text(value)
    kind = annotation.removesuffix(" | None")
    if kind == "bool" and isinstance(value, str) and value in _SWITCH:
        return _SWITCH[value]
    if kind == "str" and isinstance(value, os.PathLike):
        return os.fspath(value)
    types, wanted = _KINDS.get(kind, ((str,), "a text"))
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()  # a number of numpy
    is_right = isinstance(value, types) and (kind == "bool" or not isinstance(value, bool))
    if not is_right:
        raise InputError(f"{name} must be {wanted}, got {value!r}")
    return value
