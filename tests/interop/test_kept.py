from __future__ import annotations

import gc

import pytest
import torch

from distgnn.interop.accelerate import kept


@pytest.fixture
def table():
    return kept.KeptTable()


def test_what_was_made_of_a_tensor_is_found_by_the_tensor(table):
    first, second = torch.arange(6), torch.arange(6)
    table.of(first).made["sum"] = 15
    assert table.of(first).made == {"sum": 15}
    assert table.of(second).made == {}
    assert len(table) == 2


def test_it_is_freed_with_the_tensor(table):
    gc.disable()
    try:
        tensor = torch.arange(6)
        made = torch.zeros(3)
        died = []
        table.of(tensor).made["sum"] = Watched(made, died)
        del tensor
        assert len(table) == 0
        assert died == [True]
    finally:
        gc.enable()


class Watched:
    def __init__(self, held, died):
        self.held, self.died = held, died

    def __del__(self):
        self.died.append(True)


def test_a_change_in_place_is_noticed(table):
    tensor = torch.zeros(2, 50)
    table.of(tensor).made["sum"] = 0
    tensor[1, 7] = 3
    assert table.find(tensor) is None
    assert table.of(tensor).made == {}
    assert len(table) == 1


@pytest.mark.parametrize("write", [lambda t: t.data.mul_(2), lambda t: t.numpy().fill(7)])
def test_a_table_that_is_written_behind_torchs_back_is_noticed(table, write):
    tensor = torch.ones(40, 50)
    table.of(tensor).made["sum"] = 0
    write(tensor)
    assert table.of(tensor).made == {}


def test_no_number_is_taken_for_a_change(table):
    tensor = torch.full((3, 4), torch.nan)
    table.of(tensor).made["sum"] = 0
    assert table.of(tensor).made == {"sum": 0}


def test_a_table_of_limited_size_forgets_the_oldest():
    table = kept.KeptTable(2)
    tensors = [torch.zeros(number) for number in range(3)]
    for tensor in tensors:
        table.of(tensor).made["number"] = len(tensor)
    assert [table.find(tensor) is not None for tensor in tensors] == [False, True, True]
    assert len(table) == 2


def test_a_tensor_that_gets_the_place_of_a_dead_one_finds_nothing(table):
    tensor = torch.zeros(5)
    entry = table.of(tensor)
    entry.made["sum"] = 0
    other = torch.zeros(5)
    # As if the id had been given again before the first was forgotten.
    table._entries[id(other)] = entry
    assert table.find(other) is None
