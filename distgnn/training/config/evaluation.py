"""Evaluation in words: exact, or screened over coded rows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from distgnn.datasets.errors import InputError
from distgnn.exchange.codec import CodecSpec
from distgnn.training.config.grammar import Grammar, Word

DEFAULT_MARGIN = 0.002
"""Margin of metrics that are shares, where none is given."""
_SCREENED = re.compile(r"\s*screened\s*(?:\((?P<arguments>[^()]*)\)\s*)?")
_MARGIN = re.compile(r"\s*margin\s*=(?P<value>.*)", re.DOTALL)
_INT8 = CodecSpec(8, is_random=False)
_FORM = "exact, screened or screened(CODEC, margin=X)"


def _coded(bits: int) -> Word:
    """Return the word for codes of some bits; no gradient asks for random rounding here."""
    return Word(
        "codec",
        lambda: CodecSpec(bits=bits, is_random=False),  # type: ignore[arg-type]
        {},
    )


_CODECS = Grammar(
    "--evaluation",
    {"codec": "what screened rows are sent as"},
    {
        "bf16": _coded(16),
        "int8": _coded(8),
        "int4": _coded(4),
        "int2": _coded(2),
        "int1": _coded(1),
    },
    has_directions=False,
)


@dataclass(frozen=True)
class Screening:
    """Rule of evaluations over coded rows, of which the best are made once more exactly.

    Attributes:
        codec: Codec of the rows.
        margin: Largest difference between the metric over coded rows and the exact one that is
            expected, in units of the metric; None for the default.
    """

    codec: CodecSpec = _INT8
    margin: float | None = None

    @property
    def codec_text(self) -> str:
        """Name of the codec on the command line."""
        return CodecSpec(self.codec.bits).text

    @property
    def text(self) -> str:
        """Canonical words, which `parse_evaluation` reads."""
        margin = "" if self.margin is None else f", margin={self.margin!r}"
        return f"screened({self.codec_text}{margin})"


def parse_evaluation(text: str) -> Screening | None:
    """Read --evaluation.

    Args:
        text: Words, such as exact, screened or screened(int8, margin=0.002).

    Returns:
        The screening; None where every evaluation is exact.

    Raises:
        InputError: If the text is neither; it says what is allowed.
    """
    if text.strip() == "exact":
        return None
    found = _SCREENED.fullmatch(text)
    if found is None:
        raise InputError(f"--evaluation must be {_FORM}, got '{text}'")
    if found["arguments"] is None:
        return Screening()
    values: dict[str, CodecSpec | float] = {}
    for argument in found["arguments"].split(","):
        margin = _MARGIN.fullmatch(argument)
        name = "codec" if margin is None else "margin"
        if name in values:
            raise InputError(f"--evaluation {text} has two values for its {name}; keep one")
        values[name] = _codec(argument) if margin is None else _margin(margin["value"])
    return Screening(**values)  # type: ignore[arg-type]


def _codec(text: str) -> CodecSpec:
    codec = _CODECS.read(text)["fwd"]["codec"]
    assert isinstance(codec, CodecSpec), "the table holds codecs"
    return codec


def _margin(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(
            f"--evaluation has margin={text.strip()}; a margin is at least 0 and finite, in units "
            "of the metric"
        )
    return value
