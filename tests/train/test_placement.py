"""Features in host memory: the same training, and what cannot have them there."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest
from graphs import cut, make_graph
from training import MODELS, TYPED_MODELS, check_equal, first_step

from distgnn import streamed
from distgnn.streamed import StreamedRows


@contextmanager
def streams():
    """Let the processor stream features to itself, five rows and three columns at a time."""

    def place(inputs, *about, device):
        return replace(inputs, features=StreamedRows.of(inputs.features, device))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distgnn.train.trainer.place", place)
        patch.setattr(streamed, "SLICE_BYTES", 5 * 6 * 4)
        patch.setattr(streamed, "COLUMNS", 3)
        yield


OPTIONS = {
    "whole": {"receptive_field": False},
    "recomputed": {"recompute": True, "layers": 3},
    "anew": {"static_input": False},
    "delayed": {"algorithm": "cd-2", "dropout": 0.3},
    "alone": {"algorithm": "0c"},
    "residual": {"residual": True, "norm": "layer", "layers": 3},
    "bf16": {"activations_dtype": "bf16"},
    "bf16-features": {"features_dtype": "bf16"},
}
KINDS = {name: ("random", {"name": name}) for name in MODELS}
KINDS |= {f"typed {name}": ("typed", {"name": name}) for name in TYPED_MODELS}
KINDS |= {
    f"{model} {name}": ("random", {"model": model, **options})
    for model in ("sage", "gcn", "gin")
    for name, options in OPTIONS.items()
    # GIN adds rows of bfloat16 before it multiplies them, and so rounds no weights, on the device.
    if (model, name) != ("gin", "bf16-features")
}


@pytest.mark.parametrize("name", KINDS)
def test_training_with_features_in_host_memory_is_the_same(name):
    kind, options = KINDS[name]
    graph = make_graph(kind, num_vertices=40)
    for num_parts in (1, 2):
        parts = cut(graph, num_parts)
        expected = first_step(parts, graph, num_epochs=2, **options)
        with streams():
            got = first_step(parts, graph, num_epochs=2, **options)
        check_equal(got, expected)
