"""The error of every input that the user can put right."""

from __future__ import annotations


class InputError(ValueError):
    """An input that cannot be used as it is.

    The message is one sentence: what is wrong, the value, what is allowed and what to do. The
    command line prints it on standard error and exits with status 2.
    """
