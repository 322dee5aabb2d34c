"""Files that a run gives: tables of predictions and embeddings, and weights for other libraries."""

from __future__ import annotations

import csv
import importlib

import numpy as np
import pytest
import torch

import distgnn as dg
from distgnn.interop.weights import to_dgl


def read(path, separator=","):
    with path.open(newline="") as file:
        header, *rows = csv.reader(file, delimiter=separator)
    return {name: [row[n] for row in rows] for n, name in enumerate(header)}


def test_a_table_has_the_probabilities_of_all_classes_when_asked_for(distgnn, ring_run, here):
    assert distgnn("predict", ring_run, "--out", "p.csv", "--probabilities").status == 0
    table = read(here / "p.csv")
    assert list(table) == [
        *("id", "label", "probability"),
        *(f"probability_{number}" for number in range(3)),
    ]
    found = dg.predict(ring_run)
    columns = [table[f"probability_{number}"] for number in range(3)]
    np.testing.assert_allclose(np.array(columns, dtype=float).T, found, atol=5e-7)
    assert table["label"] == [str(best) for best in found.argmax(axis=1)]
    assert distgnn("predict", ring_run, "--out", "q.csv").status == 0
    assert list(read(here / "q.csv")) == ["id", "label", "probability"]


def test_predictions_go_to_parquet(distgnn, ring_run, here):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert distgnn("predict", ring_run, "--out", "p.parquet", "--probabilities").status == 0
    table = parquet.read_table(here / "p.parquet")
    found = dg.predict(ring_run)
    assert table.column("id").to_pylist() == list(range(len(found)))
    kept = [table.column(f"probability_{number}").to_numpy() for number in range(3)]
    np.testing.assert_array_equal(np.stack(kept, axis=1), found)
    assert table.column("label").to_pylist() == found.argmax(axis=1).tolist()


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "npy"])
def test_embeddings_go_to_every_form(suffix, distgnn, ring_run, here):
    outcome = distgnn("embed", ring_run, "--out", f"h.{suffix}", "--json")
    rows = dg.embed(ring_run)
    assert outcome.json == {"file": f"h.{suffix}", "num_vertices": len(rows), "width": 4}
    path = here / f"h.{suffix}"
    if suffix == "npy":
        found = np.load(path)
    elif suffix == "parquet":
        table = pytest.importorskip("pyarrow.parquet").read_table(path)
        assert table.column_names == ["id", "h0", "h1", "h2", "h3"]
        found = np.stack([table.column(f"h{n}").to_numpy() for n in range(4)], axis=1)
    else:
        table = read(path, "\t" if suffix == "tsv" else ",")
        assert table["id"] == [str(number) for number in range(len(rows))]
        found = np.array([table[f"h{n}"] for n in range(4)], dtype=np.float32).T
    np.testing.assert_array_equal(found, rows)


def test_parquet_without_pyarrow_is_one_sentence(distgnn, ring_run, monkeypatch):
    load = importlib.import_module

    def refuse(name, *more):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return load(name, *more)

    monkeypatch.setattr(importlib, "import_module", refuse)
    sentence = distgnn("embed", ring_run, "--out", "h.parquet").sentence
    assert sentence == (
        "--out ends in .parquet, but pyarrow is not installed; pip install 'distgnn[parquet]', or "
        "write .csv"
    )


def test_weights_are_exported_under_our_names(distgnn, ring_run, here):
    outcome = distgnn("export", ring_run, "--to", "torch", "--out", "w.pt")
    state = torch.load(here / "w.pt", weights_only=True)
    own = dg.Run(ring_run).state_dict()
    assert list(state) == list(own)
    assert all(torch.equal(state[name], own[name]) for name in own)
    assert outcome.out.splitlines() == [f"wrote {len(own)} tensors to w.pt", *own]


def test_weights_are_exported_under_the_names_of_pyg(distgnn, ring_run, here):
    pytest.importorskip("torch_geometric")
    assert distgnn("export", ring_run, "--to", "pyg", "--out", "w.pt").status == 0
    model = dg.Run(ring_run).to_pyg()
    wanted = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for tensor in model.state_dict().values():
        tensor.zero_()
    model.load_state_dict(torch.load(here / "w.pt", weights_only=True))
    assert all(torch.equal(t, wanted[n]) for n, t in model.state_dict().items())


def test_weights_are_exported_under_the_names_of_dgl(distgnn, ring, here):
    words = ["--model", "gat", "--hidden", 4, "--heads", 2, "--norm", "layer", "--epochs", 1]
    assert distgnn("train", ring, "--run", "r", *words, "--quiet").status == 0
    assert distgnn("export", "r", "--to", "dgl", "--out", "w.pt").status == 0
    state = torch.load(here / "w.pt", weights_only=True)
    layer = dg.nn.GATConv(4, 4, heads=2)
    names = {f"layers.{number}.{name}" for number in range(2) for name in to_dgl(layer)}
    assert names <= set(state)
    assert sorted(set(state) - names) == ["norms.0.bias", "norms.0.weight"]
    own = dg.Run("r").state_dict()
    assert torch.equal(state["norms.0.weight"], own["norms.0.weight"])
    # Whatever its form, the map of the first layer has the same values.
    size = state["layers.0.fc.weight"].numel()
    (mapped,) = (t for n, t in own.items() if n.startswith("hidden.0") and t.numel() == size)
    assert torch.equal(
        state["layers.0.fc.weight"].flatten().sort().values, mapped.flatten().sort().values
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--to", "onnx", "--out", "w.pt"], "argument --to: invalid choice: 'onnx'"),
        (["--to", "torch", "--out", "w.bin"], "--out must end in .pt, got 'w.bin'"),
        (["--to", "torch", "--out", "no/w.pt"], "cannot write 'no/w.pt': "),
    ],
)
def test_an_export_that_cannot_be_is_one_sentence(words, sentence, distgnn, ring_run):
    assert distgnn("export", ring_run, *words).sentence.startswith(sentence)
