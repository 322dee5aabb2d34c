"""Help in two lengths, errors as one sentence, and the nearest option to an unknown one."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import TYPE_CHECKING, Any, NoReturn

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

HELP_ALL = "--help-all"


class _Formatter(argparse.HelpFormatter):
    """Formatter that wraps sentences, and keeps texts of several lines as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return "\n".join(f"{indent}{line}".rstrip() for line in text.splitlines())
        return super()._fill_text(text, width, indent)


class _HelpAll(argparse.Action):
    """Option that prints every option and ends."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> NoReturn:
        del namespace, values, option_string
        assert isinstance(parser, Parser)
        print(parser.full_help(), end="")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Parser whose errors are one sentence, and whose help may show the common options alone.

    Args:
        examples: Commands to begin with, one a line.
        common: Options that --help shows; all where there are none, and there is no --help-all.
        words: Arguments of `argparse.ArgumentParser`.
    """

    def __init__(self, *, examples: str = "", common: Collection[str] = (), **words: Any) -> None:
        super().__init__(formatter_class=_Formatter, **words)
        self._examples = examples
        self._common = frozenset(common)
        if common:
            self.add_argument(HELP_ALL, action=_HelpAll, nargs=0, help="show every option and exit")

    def error(self, message: str) -> NoReturn:
        """Raise an error of one sentence.

        Raises:
            InputError: Always.
        """
        # "argument --parts: must be ..." reads like the messages that are not argparse's.
        sentence = re.sub(r"^argument ([^:]+): must ", r"\1 must ", message)
        raise InputError(f"{sentence}; see {self.prog} --help")

    def format_help(self) -> str:
        """Return the help: usage, examples, and the common options of each group."""
        return self._help(is_short=bool(self._common))

    def full_help(self) -> str:
        """Return the help with every option."""
        return self._help(is_short=False)

    @property
    def help_option(self) -> str:
        """Option that shows all options."""
        return HELP_ALL if self._common else "--help"

    def options(self) -> Iterator[str]:
        """Yield the words of all options."""
        for action in self._actions:
            yield from action.option_strings

    def _help(self, *, is_short: bool) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        formatter.add_text(self._examples)
        num_hidden = 0
        for group in self._action_groups:
            shown = [
                action for action in group._group_actions if not is_short or self._is_common(action)
            ]
            num_hidden += len(group._group_actions) - len(shown)
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(shown)
            formatter.end_section()
        if num_hidden:
            formatter.add_text(f"{num_hidden} more options: {self.prog} {HELP_ALL}")
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def _is_common(self, action: argparse.Action) -> bool:
        words = action.option_strings
        return not words or not self._common.isdisjoint(words)


def parse(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line.

    Args:
        parser: Parser of all verbs.
        words: Words after the program's name.

    Returns:
        The arguments.

    Raises:
        InputError: If a word is not understood; names the nearest option of the verb.
    """
    found, others = parser.parse_known_args(words)
    if not others:
        return found
    verb = _verb_of(parser, found)
    unknown = next((word for word in others if word.startswith("-")), "")
    # Without their dashes, which make all of them alike.
    options = {option.lstrip("-"): option for option in verb.options()}
    near = difflib.get_close_matches(unknown.partition("=")[0].lstrip("-"), options, n=1)
    hint = f"; did you mean {options[near[0]]}?" if near else ";"
    raise InputError(
        f"unrecognized arguments: {' '.join(others)}{hint} see {verb.prog} {verb.help_option}"
    )


def _verb_of(parser: Parser, found: argparse.Namespace) -> Parser:
    """Return the parser of the verb that was given, or of the verb below it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            verb = action.choices.get(getattr(found, action.dest, ""))
            return parser if verb is None else _verb_of(verb, found)
    return parser
