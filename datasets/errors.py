"""The error of every input that the user can put right."""

from __future__ import annotations

_MOST_CHARACTERS = 500
_TAIL = 200


def one_line(text: str) -> str:
    """Make text fit to print: one line of printable characters, at most 500 of them.

    Args:
        text: Any text, which may have bytes of a damaged file in it.

    Returns:
        The text with line ends as blanks, and control characters and lone surrogates as escapes. A
        long one keeps its beginning and its end.
    """
    # Text that is cut anyway need not be walked to its end.
    if len(text) > 4 * _MOST_CHARACTERS:
        text = text[: 2 * _MOST_CHARACTERS] + text[-2 * _MOST_CHARACTERS :]
    line = " ".join(text.splitlines())
    if not line.isprintable():
        line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    if len(line) > _MOST_CHARACTERS:
        line = f"{line[: _MOST_CHARACTERS - _TAIL - 5]} ... {line[-_TAIL:]}"
    return line


def is_writable(text: str) -> bool:
    """Return whether a text can be written to a file: it has no lone surrogates."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


class InputError(ValueError):
    """An input that cannot be used as it is.

    The message is one sentence: what is wrong, the value, what is allowed and what to do. The
    command line prints it on standard error and exits with status 2. `one_line` bounds it.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))
