"""Ways of walking a block are tried and kept; no result depends on which is taken."""

from __future__ import annotations

import pytest
from graphs import cut, make_graph
from ordered_graphs import GRAPHS, tensors
from training import ends_of, make_config

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.edges.walk_orders import Chooser, WalkOrders, WalkOrderSource, Way, edges_per_piece
from distgnn.kernels.csr import Csr
from distgnn.training.data.info import DataInfo
from distgnn.training.loop.trainer import Trainer
from distgnn.training.loop.walk_trials import Tuner, aggregated_widths, fastest_of, time_walk_orders

WIDTHS = (4, 20)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Blocks of any size are ordered, and trials are short."""
    monkeypatch.setattr("distgnn.edges.walk_orders._MIN_ORDERED_EDGES", 1)
    monkeypatch.setattr("distgnn.edges.walk_orders._CACHE_BYTES", (0, 0))
    monkeypatch.setattr("distgnn.training.loop.walk_trials._SECONDS", 0.01)


def block_of(case):
    graph = GRAPHS[case]()
    return Csr(*tensors(graph), graph.indptr.size - 1, None, None, None, WalkOrders())


def tuner(folder=None, *, source=None, said=None, is_trying=True, **changes):
    options = {"widths": WIDTHS, "machine": "this one", **changes}
    say = [].append if said is None else said.append
    return Tuner(
        options["widths"],
        source=source or WalkOrderSource(),
        machine=options["machine"],
        folder=folder,
        is_trying=is_trying,
        say=say,
    )


CHOICES = {
    "few edges": ((199_999, 50_000, 128), None),
    "sources in the level-2 cache": ((10**6, 2048, 128), None),
    "sources in the level-3 cache, few edges a piece": ((10**6, 20_000, 128), Way(None, False)),
    "sources in the level-3 cache, many edges a piece": ((2 * 10**6, 8000, 128), Way(None, True)),
    "sources in memory, as many as 8 edges a piece": ((3 * 10**6, 70_000, 256), Way(None, False)),
    "sources in memory, more edges a piece": ((11 * 10**6, 70_000, 256), Way(None, True)),
}


@pytest.mark.parametrize("case", CHOICES)
def test_without_a_trial_the_size_of_a_block_decides(case, monkeypatch):
    monkeypatch.undo()
    (num_edges, num_rows, width), expected = CHOICES[case]

    class Sized:
        num_columns = num_rows

    Sized.num_rows, Sized.num_edges = num_rows, num_edges
    assert Chooser((16, width)).choose(Sized()) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"layers": 1}, (7,)),
        ({"layers": 2}, (3,)),
        ({"layers": 3}, (3, 16)),
        ({"layers": 3, "jumping": "cat"}, (16,)),
        ({"layers": 2, "input_dropout": 0.5}, (3, 7)),
        ({"layers": 2, "static_input": False}, (3, 7)),
        ({"layers": 3, "model": "gat", "heads": 2}, (6, 32)),
        ({"layers": 2, "aggregator": "max", "static_input": False}, (7, 16)),
    ],
)
def test_a_layer_sums_the_narrower_of_its_ends_where_it_may(options, expected):
    config = make_config(hidden=16, **options)
    assert aggregated_widths(config, DataInfo("g", 7, 3)) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({"none": 1.0, "tasks": 2.0}, "none"),
        ({"none": 1.96, "tasks": 2.0}, "tasks"),
        ({"none": 3.0, "tasks": 2.0}, "tasks"),
    ],
)
def test_another_way_must_be_clearly_faster(seconds, expected):
    assert fastest_of(seconds, "tasks") == expected


TRIED = {
    "clustered": {"none", "tasks", "clusters"},
    "cut": {"none", "tasks", "clusters", "blocks", "clusters and blocks"},
    "hub": {"none", "tasks", "clusters", "blocks", "clusters and blocks"},
}


@pytest.mark.parametrize("case", TRIED)
def test_the_ways_that_may_win_are_tried_and_one_is_taken(case):
    block, said = block_of(case), []
    tried = tuner(said=said)
    way = tried.choose(block)
    (record,) = tried.records
    assert set(record["ms"]) == TRIED[case]
    assert all(value > 0 for value in record["ms"].values())
    assert (record["rows"], record["edges"]) == (block.num_rows, block.num_edges)
    assert way is None or isinstance(way, Way)
    assert len(said) == 1
    assert said[0].startswith(f"kernels: {block.num_edges} edges: ")
    assert tried.choose(block) == way
    assert len(tried.records) == 1, "the same block is tried once"


def test_the_walk_order_of_the_way_that_won_is_not_made_twice(monkeypatch):
    monkeypatch.setattr("distgnn.training.loop.walk_trials._WORTHWHILE", 0.0)

    class Recording(WalkOrderSource):
        offered = None

        def offer(self, key, walk):
            self.offered = walk
            super().offer(key, walk)

    source = Recording()
    walk_orders = WalkOrders(source, tuner(source=source))
    block = block_of("clustered")
    assert walk_orders.order(block) is walk_orders.order(block) is source.offered is not None


def test_blocks_of_other_rows_than_columns_are_not_clustered():
    graph = GRAPHS["clustered"]()
    block = Csr(*tensors(graph), graph.indptr.size, None, None, None, WalkOrders())
    tried = tuner()
    tried.choose(block)
    assert set(tried.records[0]["ms"]) == {"none", "tasks"}


def test_a_choice_is_kept_for_these_widths_and_this_machine(tmp_path):
    block = block_of("clustered")
    first = tuner(tmp_path / "kept")
    way = first.choose(block)
    again = tuner(tmp_path / "kept", is_trying=False)
    assert again.choose(block) == way
    assert again.records == first.records
    for changes in ({"widths": (4,)}, {"machine": "another"}):
        other = tuner(tmp_path / "kept", is_trying=False, **changes)
        other.choose(block)
        assert other.records == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"way": "sideways"}', '{"way": []}', "[" * 9999])
def test_a_damaged_choice_is_told_and_the_size_decides(text, tmp_path):
    block, said = block_of("clustered"), []
    tuner(tmp_path).choose(block)
    (path,) = tmp_path.iterdir()
    path.write_text(text)
    other = tuner(tmp_path, said=said, is_trying=False)
    assert other.choose(block) == Chooser(WIDTHS).choose(block)
    assert len(said) == 1
    assert said[0].endswith("its block is walked as its size suggests")


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    said = []
    tuner(tmp_path / "file" / "kept", said=said).choose(block_of("random"))
    assert "cannot keep what was tried in '" in said[-1]
    assert said[-1].endswith("Not a directory")


def test_a_trial_takes_no_more_rows_than_fit(monkeypatch):
    monkeypatch.setattr("distgnn.training.loop.walk_trials._MAX_BYTES", 300 * 2 * 4 * 3)
    assert time_walk_orders(block_of("random"), {"none": None}, (1, 500))["none"] > 0


def test_an_edge_per_piece_is_counted_in_blocks_of_sources():
    assert edges_per_piece(block_of("cut")) == pytest.approx(20, rel=0.01)


@pytest.mark.parametrize(
    ("options", "is_ordered"),
    [
        ({"model": "sgc", "layers": 1, "hops": 2}, False),
        ({"model": "sgc", "layers": 1, "hops": 2, "static_input": False}, True),
        ({"model": "gcn", "dropout": 0.0}, True),
    ],
)
def test_no_walk_order_is_made_for_sums_of_the_set_up_alone(options, is_ordered):
    asked = []

    class Asking(Chooser):
        def choose(self, block):
            asked.append(block)

    graph = make_graph("random")
    walk_orders = WalkOrders(chooser=Asking())
    config = make_config(**options)
    trainer = Trainer(
        config, ends_of(graph), cut(graph, 1)[0], SingleGroup(), walk_orders=walk_orders
    )
    list(trainer.epochs())
    assert bool(asked) == is_ordered


@pytest.mark.parametrize("model", ["sage", "gcn"])
def test_a_tuned_run_has_the_losses_of_any_other(model):
    graph = make_graph("random")
    parts = cut(graph, 3)
    config = make_config(model=model, dropout=0.3)

    class Never(Chooser):
        def choose(self, block):
            return None

    def on_rank(group, *, is_tuned):
        source = WalkOrderSource()
        walk_orders = WalkOrders(source, tuner(source=source) if is_tuned else Never())
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group, walk_orders=walk_orders)
        return [record["loss"] for record in trainer.epochs()], len(walk_orders.records)

    tuned = run_ranks(3, lambda group: on_rank(group, is_tuned=True))
    plain = run_ranks(3, lambda group: on_rank(group, is_tuned=False))
    assert [losses for losses, _ in tuned] == [losses for losses, _ in plain]
    assert all(num_tried > 0 for _, num_tried in tuned)
