from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.datasets import Graph, InputError
from distgnn.datasets.splits import parse_fractions, random_split


def labelled(num_vertices: int, num_unlabelled: int = 0) -> Graph:
    labels = np.arange(num_vertices) % 3
    labels[:num_unlabelled] = -1
    nothing = np.zeros(0, dtype=np.int64)
    return Graph(name="g", num_vertices=num_vertices, src=nothing, dst=nothing, labels=labels)


@settings(max_examples=40)
@given(
    num_labelled=st.integers(10, 200),
    num_unlabelled=st.integers(0, 20),
    fractions=st.sampled_from(
        [(0.6, 0.2, 0.2), (0.5, 0.25, 0.25), (0.1, 0.1, 0.8), (0.1, 0.1, 0.1)]
    ),
    seed=st.integers(0, 1000),
)
def test_split_takes_the_shares_from_labelled_vertices_only(
    num_labelled: int, num_unlabelled: int, fractions: tuple[float, float, float], seed: int
) -> None:
    graph = labelled(num_labelled + num_unlabelled, num_unlabelled)
    split = random_split(graph, fractions, num_splits=2, seed=seed)
    for mask, fraction in zip(
        (split.train_mask, split.val_mask, split.test_mask), fractions, strict=True
    ):
        assert mask is not None
        assert mask.shape == (2, graph.num_vertices)
        assert not mask[:, :num_unlabelled].any()
        assert np.abs(mask.sum(axis=1) - fraction * num_labelled).max() <= 1


def test_split_is_determined_by_its_seed() -> None:
    graph = labelled(50)
    first, again, other = (random_split(graph, (0.6, 0.2, 0.2), seed=s) for s in (1, 1, 2))
    assert np.array_equal(first.train_mask, again.train_mask)  # type: ignore[arg-type]
    assert not np.array_equal(first.train_mask, other.train_mask)  # type: ignore[arg-type]


def test_several_splits_differ() -> None:
    split = random_split(labelled(50), (0.6, 0.2, 0.2), num_splits=2, seed=0)
    assert split.train_mask is not None
    assert not np.array_equal(split.train_mask[0], split.train_mask[1])


def test_vertices_with_several_labels_are_all_split() -> None:
    graph = dataclasses.replace(labelled(10), labels=np.zeros((10, 2), dtype=np.uint8))
    split = random_split(graph, (0.6, 0.2, 0.2), seed=0)
    assert split.train_mask is not None
    assert split.train_mask.sum() == 6


def test_vertices_whose_flags_are_all_unknown_are_not_split() -> None:
    flags = np.zeros((20, 2), dtype=np.uint8)
    flags[:10] = 255
    flags[10] = 255, 1
    split = random_split(dataclasses.replace(labelled(20), labels=flags), (0.6, 0.2, 0.2))
    assert split.train_mask is not None
    assert split.train_mask.sum() == 6
    assert not split.train_mask[0, :10].any()
    flags[:] = 255
    with pytest.raises(InputError, match=r"all labels of graph .* are unknown"):
        random_split(dataclasses.replace(labelled(20), labels=flags), (0.6, 0.2, 0.2))


def test_vertices_whose_flags_are_all_unknown_are_left_out_of_masks() -> None:
    flags = np.zeros((20, 2), dtype=np.uint8)
    flags[[4, 18]] = 255
    flags[5] = 255, 1
    place = np.arange(20)[None]
    masks = {"train_mask": place < 16, "val_mask": place == 16, "test_mask": place > 16}
    graph = dataclasses.replace(labelled(20), labels=flags)
    with pytest.warns(UserWarning, match="the masks select 2 vertices whose flags are all unkno"):
        found = dataclasses.replace(graph, **masks)
    assert found.train_mask is not None
    assert found.test_mask is not None
    assert np.flatnonzero(found.train_mask[0]).tolist() == [0, 1, 2, 3, *range(5, 16)]
    assert np.flatnonzero(found.test_mask[0]).tolist() == [17, 19]
    assert masks["train_mask"].sum() == 16
    assert dataclasses.replace(found, name="again").test_mask is not None
    masks["test_mask"] = place == 18
    with (
        pytest.warns(UserWarning, match="2 vertices"),
        pytest.raises(InputError, match="test_mask of split 0 selects no vertex"),
    ):
        dataclasses.replace(graph, **masks)


def test_fractions_are_parsed() -> None:
    assert parse_fractions("0.6/0.2/0.2") == (0.6, 0.2, 0.2)


@pytest.mark.parametrize("text", ["", "0.6", "0.6/0.2", "a/b/c", "0.6/0.2/0.1/0.1"])
def test_text_that_is_not_three_numbers_is_an_input_error(text: str) -> None:
    with pytest.raises(InputError, match=r"a split is three fractions .*write 0.6/0.2/0.2"):
        parse_fractions(text)


@pytest.mark.parametrize("text", ["0.6/0.2/0.3", "0/0.5/0.5", "-0.2/0.6/0.6", "nan/0.1/0.1"])
def test_fractions_out_of_range_are_an_input_error(text: str) -> None:
    with pytest.raises(InputError, match="three numbers above 0 that sum to at most 1, got"):
        parse_fractions(text)


def test_split_of_a_graph_without_labels_is_an_input_error() -> None:
    graph = dataclasses.replace(labelled(5), labels=None)
    with pytest.raises(InputError, match="graph 'g' has no labels, so it cannot be split"):
        random_split(graph, (0.6, 0.2, 0.2))


def test_split_that_leaves_a_mask_empty_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"of 3 labelled vertices leaves train, val or test empty"):
        random_split(labelled(10, 7), (0.9, 0.05, 0.05))


def test_less_than_one_split_is_an_input_error() -> None:
    with pytest.raises(InputError, match="num_splits must be at least 1, got 0"):
        random_split(labelled(10), (0.6, 0.2, 0.2), num_splits=0)
