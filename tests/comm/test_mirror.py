"""A rank beside its mirror image."""

from __future__ import annotations

import pytest
import torch

from distgnn.comm.mirror import MirrorGroup


def test_what_is_sent_arrives_by_tag_and_in_order():
    group = MirrorGroup()
    places = [torch.zeros(2) for _ in range(3)]
    works = [group.irecv(place, 1, tag) for place, tag in zip(places, (0, 7, 0), strict=True)]
    works += [group.isend(torch.full((2,), value), 1, tag) for value, tag in ((1.0, 0), (2.0, 7))]
    works.append(group.isend(torch.full((2,), 3.0), 1, 0))
    for work in works:
        work.wait()
    assert [place.tolist() for place in places] == [[1, 1], [2, 2], [3, 3]]


def test_what_was_not_sent_is_not_waited_for():
    with pytest.raises(AssertionError, match="its mirror image has not sent yet"):
        MirrorGroup().irecv(torch.zeros(1), 1, 0).wait()


def test_collectives_are_those_of_two_equal_ranks():
    group = MirrorGroup()
    values = {op: torch.tensor([1.0, 3.0]) for op in ("sum", "max", "min")}
    for op, value in values.items():
        group.all_reduce(value, op)
    assert [value.tolist() for value in values.values()] == [[2, 6], [1, 3], [1, 3]]
    group.broadcast(values["sum"], 1)
    assert values["sum"].tolist() == [2, 6]
    assert group.all_gather_bytes(b"{}") == [b"{}", b"{}"]
    group.agree(None)
    group.barrier()
    group.close()


def test_the_peer_counts_ranks_from_the_other_end():
    gathered = MirrorGroup().all_gather(torch.tensor([0, 5]))
    assert [row.tolist() for row in gathered] == [[0, 5], [5, 0]]


def test_a_row_more_or_less_may_arrive():
    group = MirrorGroup()
    long, short = torch.full((3, 2), 9.0), torch.zeros(1, 2)
    works = [group.irecv(long, 1, 0), group.irecv(short, 1, 1)]
    works += [group.isend(torch.ones(2, 2), 1, tag) for tag in (0, 1)]
    for work in works:
        work.wait()
    assert (long.flatten().tolist(), short.tolist()) == ([1, 1, 1, 1, 9, 9], [[1, 1]])
