"""Own loops: the same losses and weights on any number of ranks, and no trap on the way."""

from __future__ import annotations

import re
import signal
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch
import torch.utils.checkpoint
from graphs import cut, make_graph
from torch.nn import functional

import distgnn as dg
from distgnn.api.data import Data, LoadOptions
from distgnn.api.graphs import Share, join_parts
from distgnn.api.job import end_job
from distgnn.api.session import Session, refuse_inside
from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets.errors import InputError
from distgnn.exchange.base import Synchronous
from distgnn.exchange.codec import EXACT, CodecSpec, HaloCodecs
from distgnn.partition import assign
from distgnn.partition.directory.store import write
from distgnn.partition.quality import measure
from distgnn.training.data.info import DataInfo


class Net(torch.nn.Module):
    """Two layers that reduce neighbours in two ways, with dropout between them."""

    def __init__(self, data):
        super().__init__()
        self.first = torch.nn.Linear(2 * data.num_features, 5)
        self.last = torch.nn.Linear(10, data.num_classes)

    def forward(self, graph, x):
        h = torch.relu(self.first(torch.cat([x, graph.aggregate(x, "mean")], dim=1)))
        h = graph.dropout(h, 0.3) if self.training else h
        return self.last(torch.cat([h, graph.aggregate(h, "max")], dim=1))


def store(folder, graph, num_parts):
    assignment = assign("metis", graph, num_parts)
    quality = measure(graph, assignment)
    write(folder, graph, assignment, method="metis", options={}, seed=0, quality=quality)
    return folder


@pytest.fixture(scope="module")
def graph():
    return make_graph("weighted")


@pytest.fixture(scope="module")
def parts(graph, tmp_path_factory):
    """Folders of the graph in 1 and in 3 parts."""
    folder = tmp_path_factory.mktemp("parts")
    return {count: store(folder / str(count), graph, count) for count in (1, 3)}


def on_ranks(folder, work, num_ranks):
    """Return the results of `work(session)` of all ranks."""

    def on_rank(group):
        with Session(group, seed=3) as ranks:
            return work(ranks, folder)

    return run_ranks(num_ranks, on_rank)


def draw(make):
    """Call a constructor with weights that do not depend on other threads."""
    model = make()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 3)
    return model


def learn(ranks, source, *, loss_of=None, num_epochs=6, make=Net, **options):
    """Losses, final weights and metrics of a small loop."""
    data = ranks.load(source, **options)
    model = ranks.replicate(draw(lambda: make(data)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(num_epochs):
        optimizer.zero_grad()
        scores = model(data.graph, data.x)
        loss = data.loss(scores, "train") if loss_of is None else loss_of(ranks, data, scores)
        if isinstance(loss, dict):
            losses.append(float(ranks.backward(**loss)))
        else:
            losses.append(float(ranks.backward(loss)))
        optimizer.step()
    model.eval()
    scores = model(data.exact, data.x)
    metrics = [data.metric(scores, split) for split in ("train", "val", "test")]
    return losses, metrics, {name: p.detach() for name, p in model.named_parameters()}


def check_same(one, other):
    assert other[0] == pytest.approx(one[0], rel=1e-5)
    assert other[1] == pytest.approx(one[1], rel=1e-5)
    for name, weight in one[2].items():
        torch.testing.assert_close(other[2][name], weight, rtol=1e-4, atol=1e-5, msg=name)


def test_three_ranks_learn_what_one_does(graph, parts):
    (whole,) = on_ranks(graph, learn, 1)
    (one,) = on_ranks(parts[1], learn, 1)
    (joined,) = on_ranks(parts[3], learn, 1)
    three = on_ranks(parts[3], learn, 3)
    for other in (one, joined, *three):
        check_same(whole, other)
    assert whole[0][-1] < whole[0][0]


def test_a_rank_without_training_vertices_has_a_share_of_nothing(graph, tmp_path):
    mask = np.zeros((1, graph.num_vertices), bool)
    mask[0, np.flatnonzero(graph.train_mask[0])[0]] = True
    lonely = replace(graph, train_mask=mask)
    (whole,) = on_ranks(lonely, learn, 1)
    for other in on_ranks(store(tmp_path / "parts", lonely, 3), learn, 3):
        check_same(whole, other)
    counted = on_ranks(tmp_path / "parts", lambda r, s: learn(r, s, loss_of=natural_mean), 3)
    check_same(whole, counted[0])


def natural_mean(ranks, data, scores):
    mask = data.train_mask
    loss = functional.cross_entropy(scores[mask], data.y[mask])
    return {"loss": loss, "count": int(mask.sum())}


def own_values(ranks, data, scores):
    return data.mean(functional.cross_entropy(scores, data.y, reduction="none"), "train")


def two_shares(ranks, data, scores):
    share = data.loss(scores, "train")
    return share * 0.25 + 3 * share / 4


@pytest.mark.parametrize("loss_of", [natural_mean, own_values, two_shares])
def test_losses_of_ones_own_are_those_of_the_whole_graph(graph, parts, loss_of):
    (whole,) = on_ranks(graph, learn, 1)
    for num_ranks in (1, 3):
        for other in on_ranks(
            parts[num_ranks], lambda r, s: learn(r, s, loss_of=loss_of), num_ranks
        ):
            check_same(whole, other)


def with_penalty(ranks, data, scores):
    penalty = sum(scores.new_tensor(0) + p.square().sum() for p in ranks._models[0].parameters())
    return data.loss(scores, "train") + ranks.once(0.01 * penalty)


def test_a_penalty_on_weights_counts_once(graph, parts):
    (whole,) = on_ranks(graph, lambda r, s: learn(r, s, loss_of=with_penalty), 1)
    (plain,) = on_ranks(graph, learn, 1)
    assert whole[0][0] > plain[0][0]
    for other in on_ranks(parts[3], lambda r, s: learn(r, s, loss_of=with_penalty), 3):
        check_same(whole, other)


def test_gradients_accumulate_like_those_of_torch(graph, parts):
    def twice(ranks, source):
        data = ranks.load(source)
        model = ranks.replicate(draw(lambda: Net(data))).eval()
        for _ in range(2):
            ranks.backward(data.loss(model(data.graph, data.x)))
        double = [parameter.grad for parameter in model.parameters()]
        model.zero_grad()
        ranks.backward(data.loss(model(data.graph, data.x)))
        for grad, parameter in zip(double, model.parameters(), strict=True):
            torch.testing.assert_close(grad, 2 * parameter.grad)

    on_ranks(parts[3], twice, 3)


def test_frozen_weights_stay_without_a_gradient(parts):
    def freeze(ranks, source):
        data = ranks.load(source)
        model = ranks.replicate(Net(data))
        model.first.weight.requires_grad_(False)
        ranks.backward(data.loss(model(data.graph, data.x)))
        assert model.first.weight.grad is None
        assert model.first.bias.grad is not None

    on_ranks(parts[3], freeze, 3)


def test_every_rank_begins_with_the_weights_of_rank_0(parts):
    def begin(ranks, source):
        model = torch.nn.Linear(2, 2)
        torch.nn.init.constant_(model.weight, ranks.rank + 7)
        return ranks.replicate(model).weight.detach().tolist()

    assert on_ranks(parts[3], begin, 3) == [[[7, 7], [7, 7]]] * 3


def test_delays_train_and_settle_on_the_exact_loss(graph, parts):
    (whole,) = on_ranks(graph, lambda r, s: learn(r, s, num_epochs=60), 1)
    delayed = on_ranks(parts[3], lambda r, s: learn(r, s, num_epochs=60, algorithm="cd-2"), 3)
    assert delayed[0][0] == delayed[1][0] == delayed[2][0] != whole[0]
    assert delayed[0][0][-1] == pytest.approx(whole[0][-1], rel=0.5)


def test_a_graph_with_delays_is_walked_once_an_epoch(parts):
    def evaluate_on_it(ranks, source, *, has_backward):
        data = ranks.load(source, algorithm="cd-1")
        model = ranks.replicate(Net(data))
        ranks.backward(data.loss(model(data.graph, data.x)))
        scores = model(data.graph, data.x)
        if has_backward:
            ranks.backward(data.loss(model.last(torch.zeros(len(scores), 10))))
        with torch.no_grad():
            model(data.graph, data.x)
        ranks.backward(data.loss(scores))

    with pytest.raises(InputError, match=r"message \d .* is another one in epoch 1 than before"):
        on_ranks(parts[3], lambda r, s: evaluate_on_it(r, s, has_backward=False), 3)
    with pytest.raises(InputError, match=r"carried \d messages .* evaluate on data\.exact"):
        on_ranks(parts[3], lambda r, s: evaluate_on_it(r, s, has_backward=True), 3)


@pytest.mark.parametrize("rule", [{"algorithm": "cd-1"}, {"halo": "bins(2)+int8"}])
def test_a_second_graph_with_delays_is_refused(rule, parts):
    def load_two(ranks, source):
        ranks.load(source, algorithm="cd-2")
        assert not ranks.load(source, halo="int8").is_delayed
        with pytest.raises(InputError, match="a second graph with delays would use the messages"):
            ranks.load(source, **rule)

    on_ranks(parts[3], load_two, 3)


class CodedLater(Synchronous):
    """Exact rows in the first epoch, 4 bits a value afterwards."""

    def begin(self, route, rows, channel, picked=None, **kept):
        codec = CodecSpec(4, least_columns=1) if self.seeds.epoch else EXACT
        self.codecs = HaloCodecs(codec, codec)
        return super().begin(route, rows, channel, picked, **kept)


def test_an_exchange_of_the_users_is_that_of_training(parts):
    def train(ranks, source, halo):
        data = ranks.load(source, halo=halo)
        weight = torch.nn.Parameter(torch.ones(data.num_features, data.num_classes))
        model = ranks.replicate(torch.nn.ParameterList([weight]))
        found = []
        for _ in range(3):
            rows = data.graph.aggregate(data.x.relu() @ model[0])
            loss = float(ranks.backward(data.loss(rows)))
            found.append((loss, data.graph.exchange.take_bytes()))
        # Nobody knows what a function will return.
        assert data.is_delayed == (not isinstance(halo, str | type))
        assert float(data.metric(rows, "test")) >= 0
        return found

    own, exact, again = (
        on_ranks(parts[3], lambda r, s, halo=halo: train(r, s, halo), 3)[0]
        for halo in (CodedLater, "exact", lambda group, **more: CodedLater(group, **more))
    )
    assert own[0] == exact[0]
    assert own == again
    for (loss, sent), (other, most) in zip(own[1:], exact[1:], strict=True):
        assert loss != other
        assert 0 < sent < most


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"halo": CodedLater, "algorithm": "cd-2"},
            "halo=CodedLater and algorithm='cd-2' or overlap=False all say when rows travel; leave",
        ),
        (
            {"halo": CodedLater(SingleGroup())},
            "halo must be words or a class of exchanges, got a CodedLater; give the class",
        ),
        ({"halo": lambda *_, **__: 5}, "returned a int; return a subclass of distgnn.exchange"),
    ],
)
def test_what_is_no_exchange_is_refused(options, sentence, parts):
    def load(ranks, source):
        with pytest.raises(InputError, match=re.escape(sentence)):
            ranks.load(source, **options)

    on_ranks(parts[3], load, 3)


def test_many_evaluations_need_no_epoch(parts):
    def evaluate(ranks, source):
        data = ranks.load(source)
        with torch.no_grad():
            for _ in range(1500):
                total = data.exact.aggregate(data.x[:, :1])
        assert data.exact.exchange.num_channels > 2048
        torch.testing.assert_close(total, data.graph.aggregate(data.x[:, :1]))

    on_ranks(parts[3], evaluate, 3)


def test_data_say_what_they_are(graph, parts):
    def look(ranks, source):
        data = ranks.load(source)
        assert data.x.shape == (data.num_rows, data.num_features)
        assert data.y.shape == data.train_mask.shape == (data.num_rows,)
        total = ranks.all_reduce(torch.stack([data.train_mask.sum(), data.test_mask.sum()]))
        return ranks.all_reduce(data.num_rows), total.tolist(), repr(data), repr(ranks)

    answers = on_ranks(parts[3], look, 3)
    counts = [int(graph.train_mask.sum()), int(graph.test_mask.sum())]
    assert [answer[:2] for answer in answers] == [(graph.num_vertices, counts)] * 3
    assert f"part 2 of 3 of '{parts[3]}'" in answers[2][2]
    assert "6 features, 3 classes, 20 train, 10 val, 10 test" in answers[2][2]
    assert "rank 1 of 3 on cpu, open" in answers[1][3]
    assert all(text.count("\n") == 1 for answer in answers for text in answer[2:])


@pytest.mark.parametrize("kind", ["multi-label", "regression", "unknown-flags"])
def test_other_tasks_have_their_loss_and_metric(tmp_path, kind):
    graph = make_graph(kind)
    (whole,) = on_ranks(graph, learn, 1)
    for other in on_ranks(store(tmp_path / "parts", graph, 3), learn, 3):
        check_same(whole, other)


def test_sparse_features_are_dense_unless_they_are_to_stay(tmp_path):
    graph = make_graph("sparse-features")
    dense = dg.Data.__init__  # the class that load returns is public
    assert dense is Data.__init__

    def look(ranks, source):
        rows, kept = ranks.load(source).x, ranks.load(source, sparse=True).x
        torch.testing.assert_close(rows, kept.to_dense())

    on_ranks(graph, look, 1)


def test_a_graph_without_labels_takes_a_loss_of_ones_own(tmp_path):
    rng = np.random.default_rng(0)
    bare = dg.Graph(
        name="bare",
        num_vertices=9,
        src=rng.integers(0, 9, 30),
        dst=rng.integers(0, 9, 30),
        features=rng.random((9, 2)).astype(np.float32),
    )

    def learn_mean(ranks, source):
        data = ranks.load(source)
        assert (data.y, data.train_mask, data.num_classes) == (None, None, 0)
        model = ranks.replicate(draw(lambda: torch.nn.Linear(2, 1)))
        values = data.graph.aggregate(model(data.x), "mean")[:, 0]
        with pytest.raises(InputError, match="the graph has no labels; add them"):
            data.loss(values[:, None])
        return float(ranks.backward(data.mean(values.square(), "all"))), model.weight.grad

    (one,) = on_ranks(bare, learn_mean, 1)
    for other in on_ranks(store(tmp_path / "parts", bare, 3), learn_mean, 3):
        assert other[0] == pytest.approx(one[0], rel=1e-5)
        torch.testing.assert_close(other[1], one[1])


# What would be wrong silently is one sentence.


def backward_of(loss_of):
    def work(ranks, source):
        data = ranks.load(source)
        model = ranks.replicate(Net(data))
        return ranks.backward(loss_of(ranks, data, model(data.graph, data.x), model))

    return work


LOSSES = {
    "a mean over one rank's rows weighs ranks, not vertices; use data.loss": lambda r, d, s, m: (
        functional.cross_entropy(s[d.train_mask], d.y[d.train_mask])
    ),
    "for a penalty on weights add ranks.once": lambda r, d, s, m: (
        d.loss(s) + m.first.weight.square().sum()
    ),
    "say how many terms it is the mean of with": lambda r, d, s, m: d.loss(s) * d.loss(s),
    "takes a loss of one number that depends on weights": lambda r, d, s, m: d.loss(s.detach()),
    "scores must have 3 columns, one for each class": lambda r, d, s, m: d.loss(s[:, :2]),
    "one for each vertex that this rank owns, but the model returned 1;": lambda r, d, s, m: d.loss(
        s[:1]
    ),
    "as many as the whole graph has vertices; keep the rows": lambda r, d, s, m: d.loss(
        s.new_zeros(d.num_vertices, 3)
    ),
    "scores must be a tensor of floats": lambda r, d, s, m: d.loss(s.long()),
    "one value for each row, got shape": lambda r, d, s, m: d.mean(s),
    "split must be one of train, val, test, got 'dev'": lambda r, d, s, m: d.loss(s, "dev"),
    "parameter of shape \\(3, 3\\) that is of no replicated model": lambda r, d, s, m: d.loss(
        torch.nn.Linear(3, 3)(s)
    ),
    "data.x was changed in place": lambda r, d, s, m: (d.x.add_(1), d.loss(s))[1],
    "data.train_mask was changed after it was loaded": lambda r, d, s, m: (
        d.train_mask.fill_(True),
        d.mean(s[:, 0]),
    )[1],
    r"data.val_mask was changed .* ranks.backward\(loss, count=int\(mask.sum\(\)\)\)": (
        lambda r, d, s, m: (setattr(d, "val_mask", d.train_mask), d.loss(s, "val"))[1]
    ),
    "data.y was changed after": lambda r, d, s, m: (d.y.clamp_(max=1), d.loss(s))[1],
    "data.y was changed .* in data.loss, data.mean and data.metric": lambda r, d, s, m: (
        setattr(d, "y", d.y.clone()),
        d.metric(s),
    )[1],
}


@pytest.mark.parametrize("sentence", LOSSES)
def test_losses_that_would_be_wrong_are_refused(parts, sentence):
    with pytest.raises(InputError, match=sentence):
        on_ranks(parts[3], backward_of(LOSSES[sentence]), 3)


@pytest.mark.parametrize("is_reentrant", [True, False])
@pytest.mark.parametrize(
    "drop",
    [
        lambda graph, x: graph.dropout(x, 0.5),
        lambda graph, x: dg.nn.Dropout(0.5)(graph, x),
        lambda graph, x: draw(lambda: dg.nn.GATConv(5, 5, dropout=0.5))(graph, x),
    ],
)
def test_dropout_that_is_repeated_by_torch_is_refused(drop, is_reentrant, graph):
    def work(ranks, source):
        data = ranks.load(source)
        rows = torch.ones(data.num_rows, 5, requires_grad=True)
        total = torch.utils.checkpoint.checkpoint(
            lambda x: drop(data.graph, x).square(), rows, use_reentrant=is_reentrant
        )
        total.sum().backward()

    with pytest.raises(InputError, match=r"during a backward pass.* outside of the checkpointed"):
        on_ranks(graph, work, 1)


def test_other_input_and_labels_of_ones_own_are_taken(parts):
    def work(ranks, source):
        data = ranks.load(source)
        data.x = data.x * 2 + 1
        data.y = data.y % 2
        model = ranks.replicate(Net(data))
        scores = model(data.graph, data.x)
        ranks.backward(data.mean(functional.cross_entropy(scores, data.y, reduction="none")))

    on_ranks(parts[3], work, 3)


@pytest.mark.parametrize("kind", ["weighted", "multi-label", "regression"])
def test_models_in_bfloat16_learn_the_same_weights_on_every_rank(tmp_path, kind):
    def work(ranks, source):
        data = ranks.load(source)
        model = ranks.replicate(torch.nn.Linear(data.num_features, data.num_classes).bfloat16())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for loss_of in (data.loss, lambda scores: data.mean(scores.square().mean(dim=1))):
            scores = data.graph.aggregate(model(data.x.bfloat16()), "mean")
            assert ranks.backward(loss_of(scores)).dtype == torch.float32
            optimizer.step()
        assert scores.dtype == model.weight.grad.dtype == torch.bfloat16
        return data.metric(scores), [parameter.tolist() for parameter in model.parameters()]

    first, *others = on_ranks(store(tmp_path / "parts", make_graph(kind), 3), work, 3)
    assert others == [first, first]


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16])
def test_tensors_that_cannot_be_summed_are_refused(dtype, parts):
    def work(ranks, source):
        with pytest.raises(InputError, match=f"got {dtype}; convert it, for example with"):
            ranks.all_reduce(torch.ones(2, dtype=dtype))

    for size in (1, 3):
        on_ranks(parts[3], work, size)


def test_one_rank_takes_any_loss(graph):
    on_ranks(graph, backward_of(lambda r, d, s, m: s.square().mean()), 1)


class WithBatchNorm(Net):
    def __init__(self, data):
        super().__init__(data)
        self.norm = torch.nn.BatchNorm1d(5)


class WithRows(Net):
    def __init__(self, data):
        super().__init__(data)
        self.own = torch.nn.Parameter(torch.zeros(data.num_rows, 2))


class WithBuffer(Net):
    def __init__(self, data):
        super().__init__(data)
        self.register_buffer("all_rows", torch.zeros(data.num_vertices, 2))


class WithLazy(Net):
    def __init__(self, data):
        super().__init__(data)
        self.lazy = torch.nn.LazyLinear(2)


MODELS = {
    "'norm' of the model is torch's BatchNorm1d, .* use distgnn.nn.BatchNorm": WithBatchNorm,
    "'own' of the model is of shape .* on rank 0 but of shape .* on rank": WithRows,
    "buffer 'all_rows' of the model has a row for each of the graph's 40": WithBuffer,
    "parameter 'lazy.weight' of the model is lazy": WithLazy,
    "model must be a torch.nn.Module, got a Data": lambda data: data,
}


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize("sentence", MODELS)
def test_models_that_would_differ_between_ranks_are_refused(parts, sentence):
    def work(ranks, source):
        ranks.replicate(MODELS[sentence](ranks.load(source)))

    with pytest.raises(InputError, match=sentence):
        on_ranks(parts[3], work, 3)


def test_backward_without_a_replicated_model_is_refused(graph):
    def work(ranks, source):
        data = ranks.load(source)
        ranks.backward(data.loss(Net(data)(data.graph, data.x)))

    with pytest.raises(InputError, match=r"call model = ranks\.replicate"):
        on_ranks(graph, work, 1)


@pytest.mark.parametrize(
    ("extra", "sentence"), [(False, "holds no parameter"), (True, "holds parameters beside those")]
)
def test_an_optimizer_of_another_model_is_refused(graph, extra, sentence):
    def work(ranks, source):
        data = ranks.load(source)
        model = ranks.replicate(Net(data))
        held = [*Net(data).parameters(), *(model.parameters() if extra else ())]
        optimizer = torch.optim.SGD(held, lr=0.1)
        ranks.backward(data.loss(model(data.graph, data.x)))
        optimizer.step()

    with pytest.raises(InputError, match=f"the optimizer {sentence} of a replicated model"):
        on_ranks(graph, work, 1)
    # The session has ended, and with it its watch.
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1).step()


STEPS = {
    "no ranks.backward": ("own",),
    "one without it": ("summed", "own"),
    "added to zeros": ("summed", "zeros own"),
    "under a sum": ("own summed",),
    "by a closure": ("closure",),
    "clipped": ("own clipped",),
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_a_step_by_the_gradient_of_one_rank_is_refused(parts, steps):
    def work(ranks, source):
        data = ranks.load(source)
        model = ranks.replicate(Net(data))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def loss():
            return data.loss(model(data.graph, data.x))

        def closure():
            loss().backward()

        for step in steps:
            optimizer.zero_grad(set_to_none="zeros" not in step)
            if "own" in step:
                loss().backward()
            if "summed" in step:
                ranks.backward(loss())
            if "clipped" in step:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step(closure if step == "closure" else None)

    with pytest.raises(InputError, match=r"is of this rank alone.* call ranks\.backward\(loss\)"):
        on_ranks(parts[3], work, 3)


def test_steps_by_summed_gradients_are_taken(parts):
    """No step here is by the gradient of one rank, whatever was computed between."""

    def work(ranks, source):
        data = ranks.load(source)
        model = ranks.replicate(draw(lambda: Net(data)))
        model.last.bias.requires_grad_(False)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

        def closure(*, by_hand=False):
            optimizer.zero_grad()
            loss = data.loss(model.eval()(data.graph, data.x))
            if not by_hand:
                return ranks.backward(loss)
            loss.backward()
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad = ranks.all_reduce(parameter.grad)
            return ranks.all_reduce(loss)

        optimizer.step(closure)
        for is_none in (True, False):
            data.loss(model(data.graph, data.x)).backward()  # for a look at the gradients
            optimizer.zero_grad(set_to_none=is_none)
            optimizer.step(closure)
        optimizer.step(lambda: closure(by_hand=True))
        model.last.bias.requires_grad_(True)
        ranks.backward(data.loss(model(data.graph, data.x)))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer = torch.optim.Adam(model.parameters())
        optimizer.step()
        return [parameter.tolist() for parameter in model.parameters()]

    first, *others = on_ranks(parts[3], work, 3)
    assert others == [first, first]


def test_verbs_inside_a_session_are_refused():
    with dg.init(threads=1):
        for verb, call in (
            ("distgnn.init", dg.init),
            ("distgnn.train", lambda: refuse_inside("distgnn.train")),
        ):
            with pytest.raises(InputError, match=f"{verb} opens the ranks itself, but a session"):
                call()
    refuse_inside("distgnn.train")


def test_an_exception_leaves_a_session_of_one_rank_as_it_is():
    with pytest.raises(ZeroDivisionError), dg.init(threads=1) as ranks:
        _ = 1 / 0
    for use in (lambda: ranks.load("cora"), ranks.__enter__):
        with pytest.raises(InputError, match="the session has ended"):
            use()
    refuse_inside("distgnn.train")


def test_one_rank_needs_no_with_but_several_do(graph, parts):
    alone = Session(SingleGroup())
    assert alone.load(graph).num_rows == graph.num_vertices
    alone.close()
    with pytest.raises(InputError, match=r"write with distgnn\.init\(\) as ranks: around"):
        run_ranks(3, lambda group: Session(group).load(parts[3]))


def test_sources_that_do_not_suit_the_ranks_are_refused(graph, parts):
    for source, size, sentence in (
        (parts[3], 2, "was made for 3 parts, but 2 ranks were started; run mpirun -n 3"),
        ("cora", 2, "2 ranks were started on 'cora', .* distgnn partition cora --parts 2 --out"),
        (graph, 2, "2 ranks were started on a Graph in memory, which is not cut"),
        (5, 1, "a graph must be a name, a path, .* got a int; convert it"),
        ("there-is-none", 1, "there-is-none"),
    ):
        with pytest.raises(InputError, match=sentence):
            on_ranks(source, lambda ranks, source: ranks.load(source), size)


def test_options_are_those_of_train_with_their_errors(graph):
    for options, sentence in (
        ({"algorithm": "0c"}, "algorithm 0c gives training other rows than evaluation"),
        ({"algorithm": "cd-x"}, "must be 0c, cd-0 or cd-R"),
        ({"smoothing": 0.5}, "^smoothing 0.5 has no effect with algorithm cd-0"),
        ({"delay_cache": False}, "^delay_cache off has no effect with algorithm cd-0"),
        ({"feature_norm": "big"}, "^feature_norm must be one of none, row, standard"),
        ({"split_index": 4}, "^split_index 4 is out of range"),
        ({"metric": "mse"}, "^metric 'mse' is none of a single-label task"),
    ):
        with pytest.raises(InputError, match=sentence) as caught:
            on_ranks(graph, lambda ranks, source, o=options: ranks.load(source, **o), 1)
        assert "--" not in str(caught.value), "a program has arguments, and no flags"


# Graphs of other libraries, and partitions put together again.


def test_a_joined_partition_is_the_graph_that_was_cut(tmp_path):
    for kind in ("typed", "edge-features", "sparse-features", "weighted"):
        graph = make_graph(kind)
        again = join_parts(store(tmp_path / kind, graph, 3))
        order, other = (np.lexsort((g.src, g.dst)) for g in (graph, again))
        for name in ("src", "dst"):
            assert np.array_equal(getattr(graph, name)[order], getattr(again, name)[other])
        if graph.edge_type is not None:
            assert sorted(zip(graph.src, graph.dst, graph.edge_type, strict=True)) == sorted(
                zip(again.src, again.dst, again.edge_type, strict=True)
            )
        for name in ("labels", "train_mask", "val_mask", "test_mask", "vertex_type"):
            one, two = getattr(graph, name), getattr(again, name)
            assert (one is None and two is None) or np.array_equal(one, two), name
        one, two = (g.features for g in (graph, again))
        if scipy.sparse.issparse(one):
            one, two = one.toarray(), two.toarray()
        assert np.array_equal(one, two)
        assert (again.name, again.num_classes) == (graph.name, graph.num_classes)


def test_load_takes_graphs_in_memory(graph):
    assert dg.load(graph) is graph
    matrix = scipy.sparse.csr_matrix(np.eye(4, k=1))
    assert dg.load(matrix).num_edges == 3
    assert dg.load(np.array([[0, 1], [1, 2]])).num_vertices == 3
    assert dg.load("cora").num_vertices == 2708
    networkx = pytest.importorskip("networkx")
    assert dg.load(networkx.path_graph(4)).num_edges == 6


def test_a_graph_says_what_it_is():
    assert repr(make_graph("typed")) == (
        "Graph('typed': 40 vertices, 160 edges,\n"
        "      6 features, 3 classes, 3 relations, 20 training vertices)"
    )


def test_the_table_of_vertices_has_no_effect_on_graphs_in_memory(graph):
    with pytest.raises(InputError, match="has an effect on an edge list only"):
        dg.load(graph, vertices="vertices.csv")


@pytest.fixture
def tables(tmp_path):
    """Tables whose columns have names of their own: a gap, a category and whole numbers."""
    edges, people = tmp_path / "friends.csv", tmp_path / "people.csv"
    edges.write_text("who,whom,years\nann,bob,1\nbob,cid,2\ncid,ann,3\n")
    people.write_text(
        "name,born,city,height\nann,1990,Rome,1.5\nbob,1980,Oslo,\ncid,1970,Rome,1.7\n"
    )
    columns = {
        "source_column": "who",
        "target_column": "whom",
        "weight_column": "years",
        "id_column": "name",
        "label_column": "born",
        "feature_columns": ["height"],
        "one_hot_columns": "city",
        "impute": "mean",
        "task": "regression",
    }
    return edges, {"vertices": people, **columns}


def test_load_and_partition_graph_take_choices_about_columns(tables, tmp_path):
    edges, options = tables
    graph = dg.load(edges, **options)
    assert graph.features.tolist() == [
        pytest.approx(row) for row in ([1.5, 0, 1], [1.6, 1, 0], [1.7, 0, 1])
    ]
    assert graph.edge_weight.tolist() == [1, 2, 3]
    assert graph.labels.dtype == np.float32
    assert graph.labels.ravel().tolist() == [1990, 1980, 1970]
    parts = dg.partition_graph(
        edges, 1, tmp_path / "parts", **{**options, "vertices": str(options["vertices"])}
    )
    assert np.array_equal(dg.load(parts).features, graph.features)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"label_colum": "born"}, "load has no setting 'label_colum'; did you mean label_column?"),
        ({"label_column": 3}, "label_column must be a text, got 3"),
        ({"feature_columns": 3}, "feature_columns must be names of columns, such as"),
        ({"one_hot_columns": "city,"}, "one_hot_columns must be names between commas, got 'city,'"),
        ({"impute": "mode"}, "impute must be mean, median or zero, got 'mode'"),
        ({"task": "link"}, "task must be auto or regression here, got 'link'"),
    ],
)
def test_load_refuses_choices_about_columns_that_are_none(tables, wrong, message):
    edges, options = tables
    with pytest.raises(InputError, match=re.escape(message)):
        dg.load(edges, **{**options, **wrong})


def test_choices_about_columns_have_no_effect_on_graphs_in_memory(graph):
    with pytest.raises(InputError, match="impute is about columns of a table"):
        dg.load(graph, impute="mean")


def test_a_graph_in_memory_takes_the_options_of_a_file(graph):
    changed = dg.load(graph, undirected=True, split="0.5/0.25/0.25", seed=3)
    assert changed.num_edges > graph.num_edges
    assert not np.array_equal(changed.train_mask, graph.train_mask)


def test_a_partition_is_loaded_as_the_graph_that_was_cut(graph, tmp_path):
    partition = dg.partition_graph(graph, 3, tmp_path / "parts")
    assert dg.load(partition).num_edges == graph.num_edges


def test_parts_in_memory_serve_as_shares(graph):
    """Every way to cut gives the same loss, not only the stored ones."""
    options = LoadOptions(0, "none", "auto", "auto", False, {"algorithm": "cd-0"})
    cuts = cut(graph, 3)

    def loss_of(group):
        share = Share(cuts[group.rank], DataInfo.of(graph), "a test")
        data = Data(share, group, options, seed=0)
        return float(data.loss(data.exact.aggregate(data.x)[:, :3]))

    alone = on_ranks(
        graph, lambda r, s: (lambda d: float(d.loss(d.exact.aggregate(d.x)[:, :3])))(r.load(s)), 1
    )
    assert sum(run_ranks(3, loss_of)) == pytest.approx(alone[0], rel=1e-5)


class LayersOfOurs(torch.nn.Module):
    """A model of layers whose maps K-FAC preconditions."""

    def __init__(self, data):
        super().__init__()
        self.first = dg.nn.SAGEConv(data.num_features, 5)
        self.last = dg.nn.GCNConv(5, data.num_classes)

    def forward(self, graph, x):
        return self.last(graph, torch.relu(self.first(graph, x)))


def test_a_loop_steps_by_kfac_on_any_number_of_ranks(parts):
    def work(ranks, folder):
        data = ranks.load(folder)
        model = ranks.replicate(draw(lambda: LayersOfOurs(data)))
        optimizer = dg.optim.Kfac(model, data, lr=0.3)
        assert data.num_terms == ranks.all_reduce(int(data.train_mask.sum()))
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            losses.append(float(ranks.backward(data.loss(model(data.graph, data.x), "train"))))
            optimizer.step()
        return losses

    (expected,) = on_ranks(parts[1], work, 1)
    assert expected[-1] < expected[0]
    for losses in on_ranks(parts[3], work, 3):
        assert losses == pytest.approx(expected, rel=1e-3)
    with pytest.raises(AttributeError, match=r"module 'distgnn\.optim' has no attribute 'Lion'"):
        dg.optim.Lion  # noqa: B018


def test_a_partition_is_a_source_of_each_rank(parts):
    for count in (1, 3):
        loaded = on_ranks(dg.Partition(parts[3]), lambda ranks, source: ranks.load(source), count)
        assert sum(len(data.x) for data in loaded) >= make_graph("weighted").num_vertices


def test_gradients_of_a_model_that_waits_for_its_step_stay(parts):
    def learns(ranks, _):
        torch.manual_seed(0)
        models = [torch.nn.Linear(2, 1) for _ in range(2)]
        models = [ranks.replicate(each, weights="every(8)+mean") for each in models]
        losses = [each(torch.ones(3, 2)).square().mean() for each in models]
        alone = [
            torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
            for loss, model in zip(losses, models, strict=True)
        ]
        for loss in losses:
            ranks.backward(loss)
        for model, wanted in zip(models, alone, strict=True):
            for parameter, grad in zip(model.parameters(), wanted, strict=True):
                torch.testing.assert_close(parameter.grad, grad)

    on_ranks(parts[1], learns, 1)


@pytest.mark.parametrize("layer", ["GINConv", "SGConv", "GCNConv"])
def test_the_gradient_of_the_input_is_that_of_any_rows(layer, parts):
    def grads(ranks, source):
        data = ranks.load(source)
        made = draw(lambda: getattr(dg.nn, layer)(data.num_features, 2))
        found = []
        for x in (data.x.requires_grad_(), data.x.detach().clone().requires_grad_()):
            made(data.exact, x).square().sum().backward()
            found.append(x.grad)
        torch.testing.assert_close(*found)

    on_ranks(parts[1], grads, 1)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda n: dg.nn.GATConv(n, 4, edge_dim=3),
            "reads features of edges, but the graph has no",
        ),
        (
            lambda n: dg.nn.RGCNConv(n, 4, num_relations=2),
            "reads types of edges, but the graph has",
        ),
    ],
)
def test_a_layer_that_reads_what_the_graph_lacks_says_so(make, sentence, graph):
    def reads(ranks, source):
        data = ranks.load(source)
        with pytest.raises(InputError, match=sentence):
            make(data.num_features)(data.graph, data.x)

    on_ranks(graph, reads, 1)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"num_relations": 1}, "the graph has a relation 1, but the layer was made with num_relat"),
        ({"num_relations": 3, "num_own_maps": 2}, "the graph has a type 2 of vertices, but the la"),
    ],
)
def test_a_layer_for_fewer_types_than_the_graph_has_says_so(words, sentence):
    ends = np.arange(6)
    types = np.arange(6, dtype=np.int32) % 3
    graph = dg.Graph(
        name="typed",
        num_vertices=6,
        src=ends,
        dst=np.roll(ends, 1),
        features=np.ones((6, 2), np.float32),
        edge_type=types,
        vertex_type=types,
        labels=types.astype(np.int64),
    )

    def reads(ranks, source):
        data = ranks.load(source)
        with pytest.raises(InputError, match=sentence):
            dg.nn.RGCNConv(2, 4, **words)(data.graph, data.x)

    on_ranks(graph, reads, 1)


def test_an_interrupt_that_got_through_is_not_repeated_while_a_job_ends(monkeypatch):
    monkeypatch.setattr("distgnn.api.job.fail", lambda *_, **__: None)
    signal.setitimer(signal.ITIMER_VIRTUAL, 1000)
    try:
        end_job(SingleGroup(), KeyboardInterrupt(), killed_before=0)
        assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
