"""Rows that are not kept for backward, but made again."""

from __future__ import annotations

import weakref

import torch

from distgnn.nn.recompute import made_again


def test_rows_are_made_once_for_all_who_saved_them_and_then_let_go():
    given = torch.arange(6.0).view(3, 2).requires_grad_()
    made = []

    def make():
        made.append(weakref.ref(rows := given.detach() * 2))
        return rows

    rows = given * 2
    with made_again((rows, make)):
        result = (rows * rows).sum() + rows.exp().sum()
    kept = weakref.ref(rows)
    del rows
    assert kept() is None
    result.backward()
    assert len(made) == 1
    assert made[0]() is None
    doubled = 2 * given.detach()
    assert torch.equal(given.grad, 2 * (2 * doubled + doubled.exp()))


def test_each_of_several_gets_its_own_and_others_are_kept():
    one, two, other = (torch.full((2, 2), float(k), requires_grad=True) for k in (2, 3, 5))
    read = []

    def again(rows):
        return lambda: read.append(rows) or rows.detach().clone()

    with made_again((one, again(one)), (two, again(two))):
        result = (one * other + two * other + one * two).sum()
    assert not read
    result.backward()
    assert [rows.grad[0, 0].item() for rows in (one, two, other)] == [8, 7, 5]
    assert {id(rows) for rows in read} == {id(one), id(two)}
