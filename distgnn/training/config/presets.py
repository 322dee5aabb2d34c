"""Presets: published systems as words of --halo and --weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Preset:
    """Strategies of both channels under one name.

    Attributes:
        halo: Words of --halo.
        weights: Words of --weights.
        about: Sentence on what they do.
        paper: Publication that they follow; empty for exact training.
    """

    halo: str
    weights: str
    about: str
    paper: str = ""


PRESETS: Mapping[str, Preset] = {
    "bsp": Preset("exact", "sum", "rows and gradients travel as they are, in every step"),
    "bytegrad": Preset(
        "int8(round=near)",
        "int8(round=near)",
        "8 bits a value between the least and the largest of its row, rounded to the nearest",
        "Gan et al., BAGUA: Scaling up Distributed Learning with System Relaxations, VLDB 2021",
    ),
    "cgx": Preset(
        "int4",
        "int4",
        "4 bits a value between the least and the largest of its row, rounded at random",
        "Markov et al., CGX: Adaptive System Support for Communication-Efficient Deep Learning, "
        "Middleware 2022",
    ),
}
"""Presets by name, in the order of the help."""
