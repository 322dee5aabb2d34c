"""The strategy that examples/own_strategy.py writes, on ranks as threads."""

from __future__ import annotations

from typing import Any

import torch
from graphs import cut, make_graph

from distgnn.comm.threads import run_ranks
from distgnn.edges.blocks import plan_blocks
from distgnn.graph.local_graph import LocalGraph

WIDTH = 32


def test_rows_are_exact_in_every_fifth_epoch_and_coded_in_the_others(repository):
    text = (repository / "examples/own_strategy.py").read_text("utf-8")
    names: dict[str, Any] = {}
    # The class, without the training around it.
    exec(text[text.index("from distgnn.exchange") : text.index("with dg.init")], names)
    parts = cut(make_graph(num_vertices=60), 3)

    def on_rank(group):
        part = parts[group.rank]
        exchange = names["EveryFifth"](group)
        graph = LocalGraph(part, plan_blocks(part, group), exchange)
        exchange.seeds = graph.mask_seeds
        sent = []
        for _ in range(7):
            graph.aggregate(torch.randn(part.num_roots, WIDTH, requires_grad=True)).sum().backward()
            graph.end_epoch()
            sent.append(exchange.take_bytes())
        return sent

    for sent in run_ranks(3, on_rank):
        coded = sent[0] // (4 * WIDTH) * (WIDTH // 2 + 4)
        assert sent == [sent[0], *[coded] * 4, sent[0], coded]
