"""Lines of `distgnn train --print-strategy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distgnn.cli.inspect_text import evaluation_text
from distgnn.cli.output import human_bytes, pairs, table
from distgnn.settings.fields import flag_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def strategy_lines(values: Mapping[str, Any]) -> list[str]:
    """Describe a strategy for people.

    Args:
        values: Values of `distgnn.api.strategy.spell_out`.

    Returns:
        Lines of text.
    """
    facts = {}
    if values["preset"] is not None:
        facts["--preset"] = f"{values['preset']}: {values['about']}"
    facts |= {flag_of(name): value for name, value in values["settings"].items()}
    facts["--halo"] = values["halo"]
    if values["warm_up_epochs"]:
        facts["warm-up"] = f"{values['warm_up_epochs']} epochs with exact rows"
    if values["first_epochs"]:
        facts["--start"] = values["first_epochs"]
    if values["epoch"]:
        facts["an epoch"] = values["epoch"]
    facts["rows and sums"] = values["forward"]
    facts["gradients of rows"] = values["backward"]
    facts["--weights"] = values["weights"]
    facts["gradients of weights"] = values["summed"]
    facts["--evaluation"] = values["evaluation"]
    facts["always exact"] = ", ".join(values["exact"])
    if values["papers"]:
        facts["papers"] = "; ".join(values["papers"])
    if "halo_bytes_per_epoch" in values:
        most = "at most " * values["sends_at_most"]
        facts["rows per epoch"] = most + _shrunk(values, "halo")
        most = "at most " * values["weights_at_most"]
        facts["weights per epoch"] = most + _shrunk(values, "weight")
        facts["per evaluation"] = evaluation_text(values)
    header = ["columns", "bytes of a row, exact", "forward", "backward"]
    rows = [
        [row["columns"], row["exact"], row["forward"], row["backward"]]
        for row in values["row_bytes"]
    ]
    return [*pairs(facts), "", *table(header, rows)]


def _shrunk(values: Mapping[str, Any], channel: str) -> str:
    """Return the bytes of an epoch on one channel, and by how much they shrank."""
    coded, exact = (values[f"{prefix}{channel}_bytes_per_epoch"] for prefix in ("", "exact_"))
    text = f"{human_bytes(coded)} by all ranks"
    if coded in (0, exact):
        return text
    return f"{text}, {exact / coded:.1f} times fewer than {human_bytes(exact)} as they are"
