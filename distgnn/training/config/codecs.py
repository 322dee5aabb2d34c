"""Codecs in words: what rows of halos and gradients of weights are sent as."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from distgnn.exchange.codec import EXACT, CodecSpec, HaloCodecs
from distgnn.training.config.grammar import Grammar, Parameter, Word
from distgnn.training.config.presets import PRESETS

if TYPE_CHECKING:
    from collections.abc import Mapping

_CODEC = "codec"
_SUM = "apply"
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

HALO = Grammar(
    "--halo",
    {_CODEC: "what rows are sent as"},
    _CODECS,
    names={name: preset.halo for name, preset in PRESETS.items()},
)
"""Words of --halo."""

WEIGHTS = Grammar(
    "--weights",
    {_CODEC: "what gradients are sent as", _SUM: "what becomes of them"},
    {**_CODECS, "sum": Word(_SUM, partial(str, "sum"), {})},
    has_directions=False,
    names={name: preset.weights for name, preset in PRESETS.items()},
)
"""Words of --weights."""


def parse_halo(text: str) -> HaloCodecs:
    """Read --halo.

    Args:
        text: Strategy in words, such as int8 or fwd:int8+bwd:int4(round=near), or a preset.

    Returns:
        The codecs of both directions; a direction that the text leaves out is exact.

    Raises:
        InputError: If the text is no strategy; it says where and what is allowed.
    """
    answers = HALO.read(text)
    return HaloCodecs(
        forward=cast("CodecSpec", answers["fwd"].get(_CODEC, EXACT)),
        backward=cast("CodecSpec", answers["bwd"].get(_CODEC, EXACT)),
    )


def parse_weights(text: str) -> CodecSpec:
    """Read --weights.

    Args:
        text: Strategy in words: sum, or a codec such as int8, or a preset.

    Returns:
        The codec of the gradients that ranks add up.

    Raises:
        InputError: If the text is no strategy; it says where and what is allowed.
    """
    return cast("CodecSpec", WEIGHTS.read(text)["fwd"].get(_CODEC, EXACT))


def halo_text(codecs: HaloCodecs) -> str:
    """Write the canonical words of --halo, which `parse_halo` reads.

    Args:
        codecs: Codecs of both directions.
    """
    forward, backward = codecs.forward, codecs.backward
    if forward == backward:
        return forward.text
    either = (("fwd", forward), ("bwd", backward))
    return "+".join(f"{way}:{codec.text}" for way, codec in either if codec != EXACT)


def weights_text(codec: CodecSpec) -> str:
    """Write the canonical words of --weights, which `parse_weights` reads.

    Args:
        codec: Codec of the gradients.
    """
    return "sum" if codec == EXACT else codec.text
