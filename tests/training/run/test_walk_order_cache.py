"""Walk orders on disk: what is read is what was written, or it is made again."""

from __future__ import annotations

import errno
import os
import time

import pytest
import torch
from graphs import cut, make_graph
from ordered_graphs import GRAPHS, tensors
from training import check_same_values, ends_of, make_config

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.edges.walk_orders import Chooser, NoWalkOrders, WalkOrders, Way, content_key
from distgnn.kernels.csr import Csr
from distgnn.training.loop.trainer import Trainer
from distgnn.training.run.tensors import read_tensors, write_tensors
from distgnn.training.run.walk_order_cache import WalkOrderCache, read_walk_order, write_walk_order

AUTO = Way()


def block_of(case):
    graph = GRAPHS[case]()
    return Csr(*tensors(graph), graph.indptr.size - 1, None, None, None, WalkOrders())


def cached(folder, said=None):
    return WalkOrderCache(folder, [].append if said is None else said.append)


def get(cache, block):
    return cache.get(content_key(block, AUTO), block, AUTO)


def check_same_walk_order(left, right):
    for a, b in zip(left.layout(), right.layout(), strict=True):
        check_same_values(a, b)


def only_file(folder):
    (path,) = folder.iterdir()
    return path


class Always(Chooser):
    """A walk order for blocks of any size."""

    def choose(self, block):
        return AUTO


class Never(Chooser):
    """No walk order for any."""

    def choose(self, block):
        return None


@pytest.mark.parametrize("case", GRAPHS)
def test_a_walk_order_that_is_read_is_the_one_that_was_made(case, tmp_path):
    block = block_of(case)
    first, second = cached(tmp_path / "walks"), cached(tmp_path / "walks")
    made, read = get(first, block), get(second, block)
    assert (first.counts.num_made, first.counts.num_read) == (1, 0)
    assert (second.counts.num_made, second.counts.num_read) == (0, 1)
    check_same_walk_order(read, made)


def test_a_file_tells_blocks_ways_and_versions_apart(monkeypatch):
    block, other = block_of("clustered"), block_of("random")
    narrower = Csr(
        other.indptr, other.indices, other.num_columns + 1, None, None, None, WalkOrders()
    )
    keys = [content_key(each, AUTO) for each in (block, other, narrower)]
    keys += [content_key(block, Way(clusters)) for clusters in (True, False)]
    monkeypatch.setattr("distgnn.edges.walk_orders.WALK_ORDER_VERSION", 10**9)
    keys.append(content_key(block, AUTO))
    assert len(set(keys)) == 6
    assert all(len(key) == 32 for key in keys)


def test_blocks_with_the_same_edges_share_a_walk_order(tmp_path):
    walk_orders = WalkOrders(cached(tmp_path), Always())
    assert walk_orders.order(block_of("random")) is walk_orders.order(block_of("random"))
    assert walk_orders.counts.num_walk_orders == 1


def truncate(path):
    path.write_bytes(path.read_bytes()[:-8])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path):
    path.write_bytes(b"")


def rewrite(path, **changes):
    """Change tensors and leave the file well-formed."""
    write_tensors(path, {**read_tensors(path), **changes})


def another_format(path):
    rewrite(path, numbers=torch.tensor([2, 0, 0]))


def without_a_tensor(path):
    kept = read_tensors(path)
    del kept["task"]
    write_tensors(path, kept)


DAMAGES = {
    "truncated": (
        truncate,
        r"'.*\.walk' is damaged: it should hold .*; its walk order is made again",
    ),
    "a flipped byte": (
        flip,
        r"'.*\.walk' is damaged: its checksum is not that of its data",
    ),
    "empty": (empty, r"'.*\.walk' is damaged: its header is cut off; its walk order is made again"),
    "numbers changed": (another_format, r"walk order file '.*' was altered"),
    "a tensor missing": (
        without_a_tensor,
        r"walk order file '.*' is of another format; its walk order is",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_and_the_walk_order_made_again(damage, tmp_path):
    block, said = block_of("clustered"), []
    made = get(cached(tmp_path), block)
    change, message = DAMAGES[damage]
    change(only_file(tmp_path))
    with pytest.raises(InputError, match=message):
        read_walk_order(only_file(tmp_path), content_key(block, AUTO), block)
    second = cached(tmp_path, said)
    check_same_walk_order(get(second, block), made)
    assert second.counts.num_made == len(said) == 1
    third = cached(tmp_path, said)
    check_same_walk_order(get(third, block), made)
    assert third.counts.num_read == len(said) == 1, "the file was written again"


def test_the_walk_order_of_another_graph_under_this_one_s_name_is_refused(tmp_path):
    block, said = block_of("clustered"), []
    get(cached(tmp_path), block_of("random"))
    only_file(tmp_path).rename(tmp_path / f"{content_key(block, AUTO)}.walk")
    assert get(cached(tmp_path, said), block).describe()["is_clustered"]
    assert "was altered, or is of another graph" in said[0]


def test_a_well_formed_file_that_does_not_fit_its_block_is_refused(tmp_path):
    """Somebody who can compute the checksum still cannot make a kernel read foreign memory."""
    block, other = block_of("clustered"), block_of("hub")
    key = content_key(block, AUTO)
    write_walk_order(tmp_path / "x", key, get(cached(tmp_path), other))
    with pytest.raises(InputError, match="cannot be used: the layout is not of this graph"):
        read_walk_order(tmp_path / "x", key, block)


def test_another_format_version_is_refused(tmp_path, monkeypatch):
    block = block_of("random")
    get(cached(tmp_path), block)
    monkeypatch.setattr("distgnn.training.run.walk_order_cache._FORMAT", 2)
    with pytest.raises(InputError, match="is of another format; its walk order is made again"):
        read_walk_order(only_file(tmp_path), content_key(block, AUTO), block)


def test_a_folder_that_cannot_be_made_is_told_once_and_changes_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    said = []
    cache = cached(tmp_path / "file" / "walks", said)
    for case in ("clustered", "random"):
        assert get(cache, block_of(case)) is not None
    written = [line for line in said if line.startswith("cannot write walk order cache '")]
    assert len(written) == 1
    assert "Not a directory; training continues, and the next start makes them again" in written[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_still_read(tmp_path):
    block, said = block_of("random"), []
    get(cached(tmp_path), block)
    tmp_path.chmod(0o500)
    cache = cached(tmp_path, said)
    get(cache, block)
    get(cache, block_of("clustered"))
    tmp_path.chmod(0o700)
    assert (cache.counts.num_read, cache.counts.num_made, len(said)) == (1, 1, 1)
    assert "Permission denied" in said[0]


def test_a_full_disk_is_told_once_and_leaves_no_file(tmp_path, monkeypatch):
    def full(descriptor):
        del descriptor
        raise OSError(errno.ENOSPC, "No space left on device")

    said = []
    cache = cached(tmp_path, said)
    monkeypatch.setattr(os, "fsync", full)
    for case in ("clustered", "random"):
        get(cache, block_of(case))
    assert len(said) == 1
    assert "No space left on device; training continues" in said[0]
    assert list(tmp_path.iterdir()) == []


def age(path, days):
    then = time.time() - days * 24 * 3600
    os.utime(path, (then, then))


def test_who_writes_a_walk_order_removes_those_that_nobody_read_for_a_month(tmp_path):
    get(cached(tmp_path), block_of("random"))
    unused = only_file(tmp_path)
    get(cached(tmp_path), block_of("clustered"))
    (used,) = set(tmp_path.iterdir()) - {unused}
    (tmp_path / "notes.txt").write_text("")
    for path in (unused, used, tmp_path / "notes.txt"):
        age(path, 31)
    get(cached(tmp_path), block_of("clustered"))
    assert unused.exists(), "who only reads removes nothing"
    get(cached(tmp_path), block_of("hub"))
    assert not unused.exists()
    assert used.exists(), "it was read"
    assert (tmp_path / "notes.txt").exists()


def test_a_reader_takes_what_is_kept_and_leaves_the_folder_as_it_is(tmp_path):
    kept = get(cached(tmp_path / "walks"), block_of("random"))
    reader = WalkOrderCache(tmp_path / "walks", [].append, others=NoWalkOrders())
    check_same_walk_order(get(reader, block_of("random")), kept)
    assert get(reader, block_of("hub")) is None
    assert (reader.counts.num_read, reader.counts.num_made) == (1, 0)
    assert (
        get(WalkOrderCache(tmp_path / "none", [].append, others=NoWalkOrders()), block_of("hub"))
        is None
    )
    assert only_file(tmp_path / "walks").exists()
    assert not (tmp_path / "none").exists()


def test_ranks_that_write_the_same_walk_orders_at_the_same_time_do_not_clash(tmp_path):
    block = block_of("random")

    def on_rank(group):
        said = []
        for _ in range(20):
            for path in tmp_path.iterdir():
                path.unlink(missing_ok=True)
            group.barrier()
            get(cached(tmp_path, said), block)
            group.barrier()
        return said

    assert run_ranks(4, on_rank) == [[], [], [], []]
    read_walk_order(only_file(tmp_path), content_key(block, AUTO), block)


def losses(config, graph, parts, walk_orders):
    def on_rank(group):
        own = walk_orders[group.rank]
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group, walk_orders=own)
        return [record["loss"] for record in trainer.epochs()]

    return run_ranks(len(parts), on_rank)[0]


@pytest.mark.parametrize("model", ["sage", "gcn"])
def test_a_run_with_cached_walk_orders_has_the_losses_of_one_without_walk_orders(model, tmp_path):
    graph = make_graph("random")
    parts = cut(graph, 3)
    config = make_config(model=model, dropout=0.3, epochs=3)
    expected = losses(config, graph, parts, [WalkOrders(chooser=Never()) for _ in parts])
    for is_second in (False, True):
        walk_orders = [WalkOrders(cached(tmp_path), Always()) for _ in parts]
        assert losses(config, graph, parts, walk_orders) == expected
        assert all((own.counts.num_made == 0) == is_second for own in walk_orders)


def test_a_trainer_s_blocks_are_given_its_walk_orders(tmp_path):
    """Those of the receptive field too."""
    graph = make_graph("random")
    walk_orders = WalkOrders(cached(tmp_path), Always())
    trainer = Trainer(
        make_config(layers=3),
        ends_of(graph),
        cut(graph, 1)[0],
        SingleGroup(),
        walk_orders=walk_orders,
    )
    next(trainer.epochs())
    blocks = [trainer.graph.level(number).blocks for number in range(3)]
    assert len(set(map(id, blocks))) > 1, "the layers run on different blocks"
    for forward, backward in blocks:
        assert (
            forward.root_from_root.walk_orders is backward.root_from_leaf.walk_orders is walk_orders
        )
    assert walk_orders.counts.num_walk_orders == len(list(tmp_path.iterdir())) > 2
