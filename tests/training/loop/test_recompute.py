"""Recomputed layers: the same bits, and less that is kept."""

from __future__ import annotations

import pytest
import torch
from graphs import cut, make_graph
from training import ends_of, make_config

from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.training.loop.trainer import Trainer

MODELS = {
    "gcn": {"model": "gcn"},
    "gcn-dropped-input": {"model": "gcn", "input_dropout": 0.3},
    "sage-mean": {"aggregator": "mean"},
    "sage-narrow": {"aggregator": "mean", "hidden": 12},
    "sage-gcn": {"aggregator": "gcn"},
    "sage-max": {"aggregator": "max"},
    "sage-layer-jumping": {"norm": "layer", "jumping": "cat"},
    "sage-pool": {"aggregator": "pool"},
    "gat": {"model": "gat", "input_dropout": 0.3},
    "gatv2": {"model": "gatv2", "attention_dropout": 0.5},
    "gin": {"model": "gin", "learn_eps": True},
    "sgc": {"model": "sgc"},
    "appnp": {"model": "appnp"},
    "gcn-elu": {"model": "gcn", "activation": "elu"},
    "gcn-residual": {"model": "gcn", "residual": True},
}


def trained(parts, graph, **options):
    """Losses and weights after some epochs of a deep model, and the sizes of what it saves."""
    config = make_config(layers=4, **options)
    ends = ends_of(graph)

    def on_rank(group):
        trainer = Trainer(config, ends, parts[group.rank], group)
        losses = [trainer.train_epoch() for _ in range(3)]
        return losses, trainer.model.state_dict(), trainer.graphs.savings

    return run_ranks(len(parts), on_rank)


@pytest.mark.parametrize("num_parts", [1, 3])
@pytest.mark.parametrize("model", MODELS)
def test_backward_computes_the_same_bits_again(model, num_parts):
    graph = make_graph("random")
    parts = cut(graph, num_parts)
    options = {"dropout": 0.4, **MODELS[model]}
    kept = trained(parts, graph, **options)
    again = trained(parts, graph, recompute=True, **options)
    for one, other in zip(kept, again, strict=True):
        assert one[0] == other[0]
        for name, weight in one[1].items():
            assert torch.equal(weight, other[1][name]), name
        line = "recompute: backward computes hidden layers again"
        assert line not in one[2]
        assert line in other[2]


@pytest.mark.parametrize("model", ["sage", "gcn", "gat", "gatv2"])
def test_less_is_kept_between_forward_and_backward(model):
    graph = make_graph("random")
    sizes = []
    for recompute in (False, True):
        # A first layer of GraphSAGE keeps means, as its result is wider than its input.
        config = make_config(
            layers=4,
            hidden=12,
            model=model,
            recompute=recompute,
            receptive_field=False,
            static_input=False,
        )
        (part,) = cut(graph, 1)

        def on_rank(group, config=config, part=part):
            trainer = Trainer(config, ends_of(graph), part, group)
            counts = []
            with torch.autograd.graph.saved_tensors_hooks(
                lambda tensor: counts.append(tensor.numel()) or tensor, lambda tensor: tensor
            ):
                scores = trainer.model(trainer.graph, trainer.course.take().rows)
            conv = scores.grad_fn
            held = [node.held for node in nodes(conv) if getattr(node, "held", None)]
            return sum(counts) + sum(t.numel() for pair in held for t in pair if t is not None)

        sizes += run_ranks(1, on_rank)
    assert sizes[1] < sizes[0]


def nodes(node):
    found, waiting = [], [node]
    while waiting:
        top = waiting.pop()
        found.append(top)
        waiting += [below for below, _ in top.next_functions if below is not None]
    return found


def test_what_recomputing_would_change_is_refused():
    with pytest.raises(InputError, match="--recompute would count the statistics of --norm batch"):
        make_config(recompute=True, norm="batch")
    with pytest.raises(InputError, match="--recompute would read other delayed rows than --algor"):
        make_config(recompute=True, algorithm="cd-2")


@pytest.mark.usefixtures("multiplied_here")
@pytest.mark.parametrize(
    ("options", "computes_again"),
    [
        ({"aggregator": "max"}, True),
        ({"aggregator": "gcn"}, True),
        ({"residual": True}, True),
        # As wide as their input, they keep no means.
        ({"aggregator": "mean"}, False),
    ],
)
def test_hidden_layers_aggregate_once_more_and_no_more_than_that(options, computes_again):
    graph = make_graph("random")
    (part,) = cut(graph, 1)
    counts = []
    for recompute in (False, True):
        config = make_config(
            layers=3, dropout=0.4, recompute=recompute, receptive_field=False, **options
        )

        def on_rank(group, config=config):
            trainer = Trainer(config, ends_of(graph), part, group)
            exchange = trainer.graph.exchange
            taken, new_channel = [], exchange.new_channel
            exchange.new_channel = lambda: taken.append(1) or new_channel()
            trainer.train_epoch()
            return len(taken)

        counts += run_ranks(1, on_rank)
    plain, again = counts
    assert (again > plain) == computes_again
    # Forward aggregates thrice and backward twice or thrice: twice more at most for two layers.
    assert again <= plain * 1.75


def test_a_second_forward_pass_after_backward_draws_other_masks():
    graph = make_graph("random")
    (part,) = cut(graph, 1)

    def on_rank(group):
        drawn = []
        for recompute in (False, True):
            config = make_config(layers=3, dropout=0.4, residual=True, recompute=recompute)
            trainer = Trainer(config, ends_of(graph), part, group)
            trainer.model(trainer.graph, trainer.course.take().rows).sum().backward()
            drawn.append(trainer.graph.mask_seeds.num_drawn)
        return drawn

    (drawn,) = run_ranks(1, on_rank)
    assert drawn[0] == drawn[1]


def test_an_algorithm_that_does_not_exist_is_named_before_what_it_excludes():
    with pytest.raises(InputError, match=r"--algorithm must be 0c, cd-0 or cd-R .*, got 'cd-x'"):
        make_config(recompute=True, algorithm="cd-x")
