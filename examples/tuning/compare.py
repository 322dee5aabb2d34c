"""Compare schedulers of `distgnn tune` with the full grid: best metric, epochs, and graph loads.

    python examples/tuning/compare.py SOURCE --epochs 64 --folder studies [--threads 2]

The grid has 64 combinations of models, rates, widths, dropout and weight decay. Each scheduler
samples it; the full grid trains all of it. HyperBand begins as many trials as its brackets have.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import distgnn as dg

GRID = {
    "model": ["gcn", "gat"],
    "lr": [0.001, 0.005, 0.02, 0.08],
    "hidden": [16, 64],
    "dropout": [0.2, 0.5],
    "weight_decay": [0.0, 5e-4],
}
SCHEDULERS = ("none", "asha", "halving", "hyperband", "median")


def main() -> None:
    """Run the studies that are not there yet, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("--epochs", type=int, default=64)
    parser.add_argument("--folder", type=Path, default=Path("studies"))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--schedulers", default=",".join(SCHEDULERS))
    parser.add_argument("--split", default=None)
    parser.add_argument("--metric", default="auto")
    options = parser.parse_args()
    rows = []
    for scheduler in options.schedulers.split(","):
        begun = time.perf_counter()
        found = dg.tune(
            options.source,
            search=GRID,
            sampler="grid",
            scheduler=scheduler,
            out=options.folder / scheduler,
            epochs=options.epochs,
            threads=options.threads,
            split=options.split,
            metric=options.metric,
            resume=True,
        ).summary
        rows.append(
            {
                "scheduler": scheduler,
                "trials": found["num_trials"],
                "failed": found["num_failed"],
                "val": found["best"]["val_metric"],
                "test": found["best"]["test_metric"],
                "epochs": found["epochs_trained"],
                "share": found["epochs_trained"] / (64 * options.epochs),
                "seconds": round(time.perf_counter() - begun, 1),
                **found["best"]["settings"],
            }
        )
        sys.stdout.write(json.dumps(rows[-1]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
