"""Input of a rank: its roots' features, labels and splits, normalised over the graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from graphs import CUTS, cut, make_graph
from training import task_of

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.edges.blocks import plan_blocks
from distgnn.exchange.base import Synchronous
from distgnn.ops import SparseRows
from distgnn.training.data.inputs import clone_features, load_features, load_inputs, split_rows

SINGLE = SingleGroup()
ONE_LABEL = {"task": "single-label", "metric": "accuracy"}


def dense(features):
    return features.to_dense() if isinstance(features, SparseRows) else features


def whole_part(kind="random"):
    return cut(make_graph(kind), 1)[0]


def loaded(parts, **options):
    options = {"split_index": 0, "feature_norm": "none", **options}

    def on_rank(group):
        part = parts[group.rank]
        return load_inputs(part, group, **task_of(part), **options)

    return run_ranks(len(parts), on_rank)


def together(parts, inputs):
    """Features of all roots in the order of the graph."""
    num_vertices = sum(part.num_roots for part in parts)
    whole = np.zeros((num_vertices, inputs[0].features.shape[1]), dtype=np.float32)
    for part, own in zip(parts, inputs, strict=True):
        whole[part.global_id[: part.num_roots]] = dense(own.features).numpy()
    return whole


def dense_features(graph):
    return graph.features.toarray() if sp.issparse(graph.features) else graph.features


@pytest.mark.parametrize("kind", ["random", "sparse-features", "multi-label"])
def test_each_vertex_is_loaded_once_at_its_root(kind):
    graph = make_graph(kind)
    parts = cut(graph, 3)
    inputs = loaded(parts)
    np.testing.assert_array_equal(together(parts, inputs), dense_features(graph))
    counts = {
        name: int(getattr(graph, f"{name}_mask")[0].sum()) for name in ("train", "val", "test")
    }
    for part, own in zip(parts, inputs, strict=True):
        ids = part.global_id[: part.num_roots]
        np.testing.assert_array_equal(own.labels.numpy(), graph.labels[ids])
        assert own.labels.dtype == (
            torch.float32 if own.task.name == "multi-label" else torch.int64
        )
        assert own.counts == counts
        for name, rows in own.rows.items():
            mask = getattr(graph, f"{name}_mask")[0]
            np.testing.assert_array_equal(rows.numpy(), np.flatnonzero(mask[ids]))
    assert inputs[0].measure.name == ("micro-f1" if kind == "multi-label" else "accuracy")


def test_a_vertex_without_a_label_is_in_no_split():
    part = whole_part()
    labels = np.where(part.train_mask[0], -1, part.labels)
    rows = split_rows(replace(part, labels=labels), 0, "single-label")
    assert len(rows["train"]) == 0
    assert len(rows["val"]) == int(part.val_mask.sum())


def test_a_row_of_zeros_is_a_label_of_its_own():
    part = whole_part("multi-label")
    rows = split_rows(replace(part, labels=np.zeros_like(part.labels)), 0, "multi-label")
    assert len(rows["train"]) == int(part.train_mask.sum())


def test_a_split_is_a_row_of_the_masks():
    part = whole_part()
    masks = {name: getattr(part, f"{name}_mask") for name in ("train", "val", "test")}
    two = {f"{name}_mask": np.concatenate([m, m[:, ::-1]]) for name, m in masks.items()}
    part = replace(part, **two)
    for name, mask in masks.items():
        expected = np.flatnonzero(mask[0, ::-1])
        np.testing.assert_array_equal(split_rows(part, 1, "single-label")[name], expected)
    for index in (2, -1):
        expected = rf"--split-index {index} is out of range: the graph has 2 splits \(0\.\.1\)"
        with pytest.raises(InputError, match=expected):
            split_rows(part, index, "single-label")


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("features", "the graph has no features, so nothing can be learned from; add features to"),
        ("labels", "the graph has no labels to train on; add labels to the source"),
        ("val_mask", "the graph has no train, validation and test masks; make a split with --spl"),
    ],
)
def test_what_is_missing_is_named_on_all_ranks(missing, expected):
    parts = [replace(part, **{missing: None}) for part in cut(make_graph("random"), 2)]

    def on_rank(group):
        with pytest.raises(InputError, match=expected):
            load_inputs(parts[group.rank], group, split_index=0, feature_norm="none", **ONE_LABEL)

    run_ranks(2, on_rank)


@pytest.mark.parametrize("num_parts", [1, 3])
@pytest.mark.parametrize("kind", ["random", "sparse-features"])
def test_row_norm_makes_each_row_sum_to_one(kind, num_parts):
    graph = make_graph(kind)
    parts = cut(graph, num_parts)
    features = dense_features(graph).astype(np.float64)
    sums = features.sum(axis=1, keepdims=True)
    expected = np.divide(features, sums, out=features.copy(), where=sums != 0)
    inputs = loaded(parts, feature_norm="row")
    np.testing.assert_allclose(together(parts, inputs), expected, rtol=1e-4, atol=1e-5)
    assert isinstance(inputs[0].features, SparseRows) == (kind == "sparse-features")


@pytest.mark.parametrize("num_parts", [1, 3, 7])
def test_standard_norm_takes_mean_and_variance_over_all_vertices(num_parts):
    graph = make_graph("random")
    features = graph.features.astype(np.float64)
    expected = (features - features.mean(axis=0)) / features.std(axis=0)
    parts = cut(graph, num_parts, how="empty-part")
    got = together(parts, loaded(parts, feature_norm="standard"))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("num_parts", [1, 2, 3, 7])
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -1e-4, 1234.567, 3e7])
def test_a_constant_column_becomes_zero_whatever_the_partition(value, num_parts):
    graph = make_graph("random", num_vertices=83)
    graph.features[:, 2] = value
    parts = cut(graph, num_parts)
    got = together(parts, loaded(parts, feature_norm="standard"))
    assert not got[:, 2].any()
    assert got[:, 1].std() == pytest.approx(1, rel=1e-5)


def test_the_smallest_deviation_of_a_column_still_counts():
    graph = make_graph("random")
    graph.features[:, 0] = 1.0
    graph.features[7, 0] = np.nextafter(np.float32(1), np.float32(2))
    part = cut(graph, 1)[0]
    inputs = load_inputs(part, SINGLE, split_index=0, feature_norm="standard", **ONE_LABEL)
    assert dense(inputs.features)[:, 0].std(correction=0) == pytest.approx(1, rel=1e-5)


def test_standard_norm_refuses_to_make_sparse_features_dense():
    expected = "--feature-norm standard would make sparse features dense; use --feature-norm row or"
    with pytest.raises(InputError, match=expected):
        loaded([whole_part("sparse-features")], feature_norm="standard")


@pytest.mark.parametrize("feature_norm", ["row", "standard"])
def test_the_part_itself_is_left_as_it_is(feature_norm):
    part = whole_part()
    before = part.features.copy()
    inputs = load_inputs(part, SINGLE, split_index=0, feature_norm=feature_norm, **ONE_LABEL)
    inputs.features.zero_()
    np.testing.assert_array_equal(part.features, before)


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("kind", ["random", "sparse-features"])
def test_a_part_that_trains_alone_has_the_features_of_all_clones_that_it_reads(kind, how):
    graph = make_graph(kind)
    parts = cut(graph, 3, how=how)

    def on_rank(group):
        part = parts[group.rank]
        blocks = plan_blocks(part, group)
        return clone_features(load_features(part), part, blocks, Synchronous(group))

    sent = 0
    for part, (features, num_bytes) in zip(parts, run_ranks(3, on_rank), strict=True):
        expected = dense_features(graph)[part.global_id].copy()
        expected[part.num_roots :][~part.is_reading] = 0
        np.testing.assert_array_equal(dense(features).numpy(), expected)
        assert isinstance(features, SparseRows) == (kind == "sparse-features")
        sent += num_bytes
    num_leaves = sum(int(part.is_reading.sum()) for part in parts)
    if kind == "random":
        assert sent == num_leaves * graph.num_features * 4
    else:
        rows = [part.global_id[part.num_roots :][part.is_reading] for part in parts]
        num_entries = sum(int(graph.features[own].nnz) for own in rows)
        assert sent == num_leaves * 8 + num_entries * (4 + 4)


def test_rows_of_whole_cache_lines_start_where_a_line_does():
    """A row that straddles lines is read at half the speed; numpy's arrays start 16 bytes late."""
    features = np.random.default_rng(1).random((50_000, 16)).astype(np.float32)
    rows = load_features(replace(whole_part(), features=features))
    assert rows.data_ptr() % 64 == 0
    np.testing.assert_array_equal(rows.numpy(), features)
    rows += 1
    assert features.max() < 1, "the part's own array stays as it is"


def test_features_that_need_no_change_are_not_copied():
    part = whole_part()
    assert load_features(part).data_ptr() == part.features.ctypes.data


def test_features_in_a_file_are_copied(tmp_path):
    part = whole_part()
    np.save(tmp_path / "features.npy", part.features)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="c").view(np.ndarray)
    rows = load_features(replace(part, features=mapped))
    assert rows.data_ptr() != mapped.ctypes.data
    np.testing.assert_array_equal(rows.numpy(), part.features)


def test_features_that_may_not_be_written_are_copied():
    features = np.ones((4, 3), np.float32)
    features.flags.writeable = False
    assert (
        load_features(replace(whole_part(), features=features)).data_ptr() != features.ctypes.data
    )
