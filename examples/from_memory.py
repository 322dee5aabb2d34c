"""Train on a graph that is in memory: arrays in, predictions out as an array.

    python examples/from_memory.py [OUTPUT_DIRECTORY]      default: examples/out/memory

Builds a small graph with scipy, trains a GraphSAGE on it in this process, and reads what it
predicts. `distgnn.interop` takes graphs of numpy, networkx, DGL and PyG likewise; the file
that is written here is what `distgnn partition` cuts for several processes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import scipy.sparse

from distgnn import interop
from distgnn.cli import main as distgnn
from distgnn.datasets.npz import write_npz

NUM_VERTICES, NUM_CLASSES, NUM_FEATURES = 300, 3, 8


def adjacency_and_labels() -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    """Draw a symmetric matrix whose entries join vertices of one class nine times in ten."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, NUM_CLASSES, NUM_VERTICES)
    src, dst = rng.integers(0, NUM_VERTICES, (2, 20 * NUM_VERTICES))
    is_kept = (labels[src] == labels[dst]) | (rng.random(src.size) < 0.05)
    ones = np.ones(int(is_kept.sum()), np.float32)
    shape = (NUM_VERTICES, NUM_VERTICES)
    half = scipy.sparse.csr_matrix((ones, (src[is_kept], dst[is_kept])), shape)
    return ((half + half.T) > 0).astype(np.float32), labels


def main() -> None:
    """Build the graph, write it, train and predict."""
    default = Path(__file__).resolve().parent / "out" / "memory"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    folder.mkdir(parents=True, exist_ok=True)
    adjacency, labels = adjacency_and_labels()
    # Noise alone would not do: the features say a little of the class, the neighbours the rest.
    rng = np.random.default_rng(1)
    features = rng.normal(size=(NUM_VERTICES, NUM_FEATURES)) + labels[:, None]
    graph = interop.from_scipy(adjacency, name="memory", features=features, labels=labels)
    file, run, predictions = folder / "graph.npz", folder / "run", folder / "predictions.npy"
    write_npz(graph, file)
    train = ("--split", "0.2/0.2/0.6", "--hidden", "16", "--epochs", "50")
    commands = [
        ("train", file, "--run", run, *train, "--overwrite", "--quiet"),
        ("predict", run, "--out", predictions),
    ]
    for command in commands:
        status = distgnn([str(word) for word in command])
        if status:
            raise SystemExit(status)
    predicted = np.load(predictions).argmax(axis=1)  # it has a probability for each class
    print(f"right on {(predicted == labels).mean():.3f} of all vertices")


if __name__ == "__main__":
    main()
