"""Lines about a run that has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distgnn.cli.output import human_bytes, pairs
from distgnn.training.loop.goal import describe_goal
from distgnn.training.loop.screened import describe_screening

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def result_lines(summary: Mapping[str, Any], folder: Path) -> list[str]:
    """Describe a run for people.

    Args:
        summary: Summary of the run.
        folder: Directory of the run.

    Returns:
        Lines of text.
    """
    shown = {
        f"{split} metric": "-"
        if summary[f"{split}_metric"] is None
        else f"{summary[f'{split}_metric']:.4f}"
        for split in ("test", "val", "train")
    }
    goal = {"goal": describe_goal(summary)} if "goal" in summary else {}
    screened = {"evaluation": describe_screening(summary)} if "num_screened" in summary else {}
    flags = {
        "strategy": "--halo",
        "start_strategy": "--start",
        "weights_strategy": "--weights",
    }
    again = " ".join(f"{flag} '{summary[name]}'" for name, flag in flags.items() if name in summary)
    strategy = {"to repeat": again} if again else {}
    sent = (("halo", "rows"), ("weight", "gradients"), ("eval_halo", "rows to evaluate"))
    return pairs(
        {
            "metric": summary["metric"],
            **shown,
            "best epoch": f"{summary['best_epoch']} of {summary['num_epochs']}",
            **goal,
            **screened,
            "median epoch": f"{summary['median_epoch_s'] * 1e3:.2f} ms",
            "sent per epoch": ", ".join(
                f"{human_bytes(summary[f'{name}_bytes_per_epoch'])} of {what}"
                for name, what in sent
            ),
            **strategy,
            "peak memory": human_bytes(max(summary["peak_rss_bytes"])) + " on the largest rank",
            "results": folder,
        }
    )
