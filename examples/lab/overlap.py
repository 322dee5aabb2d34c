"""Effect of overlap, bf16 and delays on the wait for the wire, and bytes counted twice.

    DISTGNN_LAB=DIR python examples/lab/overlap.py [--rate 1gbit] [--layers 3] [FOLDER]

Four hosts with one rank each; gloo over TCP, as between machines: ranks of different hosts share no
memory. Every row of the table is two runs, one longer than the other by EPOCHS. What the kernel's
counters of the four interfaces differ by between the two is what those epochs sent, whatever
start-up, evaluation at the end and shutdown cost.

The first layer's input is static, and the last one sends rows of few classes. With 3 layers the one
between them sends hidden rows, and keeps links of 1 Gb/s busy for most of an epoch.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from lab import Lab, cut, epochs_of
from results import record, table

GRAPH = "synthetic:planted,num_vertices=10000,num_features=64,average_degree=20,homophily=0.5"
MODEL = ["--hidden", "64", "--dropout", "0", "--receptive-field", "off"]
# cd-5 has no rows to wait for in its first epochs, and refuses fewer than 6.
SHORT, EPOCHS, WARM_UP = 6, 12, 6
# Ethernet 14, IPv4 20, TCP 20 with 12 for timestamps.
HEADER_BYTES = 66
BF16 = ["--activations-dtype", "bf16", "--features-dtype", "bf16"]
ROWS = {
    "cd-0 without overlap": ["--overlap", "off"],
    "cd-0": [],
    "cd-0, bf16, without overlap": ["--overlap", "off", *BF16],
    "cd-0, bf16": BF16,
    "cd-5": ["--algorithm", "cd-5"],
}


class Case(NamedTuple):
    """Values of a row of the table; bytes are those of all ranks in an epoch."""

    epoch_s: float
    wait_s: float
    counted: float
    wire: float
    headers: float


def epochs_of_one(
    lab: Lab, parts: Path, folder: Path, options: list[str]
) -> list[dict[str, float]]:
    """Train once, and keep nothing but the metrics."""
    with TemporaryDirectory(dir=folder) as made:
        run = Path(made) / "run"
        words = ["train", str(parts), "--run", str(run), *MODEL, *options, "--quiet"]
        words += ["--eval-every", "1000", "--checkpoint-every", "0", "--seed", "0"]
        lab.run(words, folder / "out")
        return epochs_of(run)


def measure(lab: Lab, parts: Path, folder: Path, options: list[str]) -> Case:
    """Run a case twice and take the difference."""
    sums, lengths = [], (SHORT, SHORT + EPOCHS)
    for length in lengths:
        before = lab.counters()
        epochs = epochs_of_one(lab, parts, folder, [*options, "--epochs", str(length)])
        sent = [
            (now.num_bytes - then.num_bytes, now.num_packets - then.num_packets)
            for now, then in zip(lab.counters(), before, strict=True)
        ]
        counted = sum(e["halo_bytes_sent"] + e["weight_bytes_sent"] for e in epochs)
        sums.append((counted, sum(n for n, _ in sent), sum(n for _, n in sent)))
    timed = epochs[WARM_UP:]
    counted, wire, packets = ((b - a) / EPOCHS for a, b in zip(*sums, strict=True))
    return Case(
        statistics.median(e["epoch_s"] for e in timed),
        statistics.median(e["exchange_wait_s"] for e in timed),
        counted,
        wire,
        packets * HEADER_BYTES,
    )


def lines_of(cases: dict[str, Case], rate: str, layers: int) -> list[str]:
    """The section of RESULTS.md."""
    first = cases["cd-0 without overlap"]
    rows = []
    for name, case in cases.items():
        payload = case.wire - case.headers
        rows.append(
            [
                name,
                f"{1e3 * case.epoch_s:.0f}",
                f"{1e3 * case.wait_s:.0f}",
                f"{case.wait_s / case.epoch_s:.0%}",
                f"{case.wait_s / first.wait_s:.2f}",
                f"{case.counted / 1e6:.2f}",
                f"{case.wire / 1e6:.2f}",
                f"{payload / 1e6:.2f}",
                f"{payload / case.counted - 1:+.2%}",
            ]
        )
    header = ["exchange", "epoch (ms)", "waiting (ms)", "of the epoch", "of the first row's wait"]
    header += ["counted (MB)", "interfaces (MB)", "less headers (MB)", "difference"]
    return [
        f"`{GRAPH}`, `{' '.join([*MODEL, '--layers', str(layers)])}`,",
        f"4 hosts at {rate}, one rank each, gloo; medians of {SHORT + EPOCHS - WARM_UP} epochs, of",
        "the slowest rank. The four ranks share the cores.",
        "",
        *table(header, rows),
        "",
        "Waiting is `exchange_wait_s`. Counted is `halo_bytes_sent + weight_bytes_sent`, of all",
        "ranks in an epoch. The interfaces' bytes are those that eth0 of the four hosts sent, by",
        f"/proc/net/dev; {HEADER_BYTES} bytes of Ethernet, IPv4 and TCP for each of their packets,",
        "acknowledgements included, are the headers. What is left beyond the counted bytes is",
        "gloo's own (a header for each message, a notice for each receive) and the heartbeats.",
    ]


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("lab-overlap"))
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--layers", type=int, default=3)
    options = parser.parse_args()
    with Lab(4, options.rate) as lab:
        options.folder.mkdir(parents=True, exist_ok=True)
        parts = options.folder / "parts"
        cut(GRAPH, parts, lab.num_hosts)
        model = ["--layers", str(options.layers)]
        cases = {
            name: measure(lab, parts, options.folder, [*model, *flags])
            for name, flags in ROWS.items()
        }
    record(f"Overlap at {options.rate}", lines_of(cases, options.rate, options.layers))


if __name__ == "__main__":
    main()
