"""Own loops over data that is no graph: words of --weights for any model and optimizer of torch."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from distgnn.api.session import Session
from distgnn.api.shared_models import TorchOptimizer
from distgnn.comm.threads import run_ranks
from distgnn.datasets.errors import InputError
from distgnn.optim.optimizers import build_optimizer

SGD = {"lr": 0.1, "momentum": 0.9}
SQUARES = ("acc_delta", "square_avg")


def linear(seed=1):
    model = torch.nn.Linear(4, 3)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.randn(each.shape, generator=generator))
    return model


def learn(words, *, size=3, steps=6, make=torch.optim.SGD, **options):
    """Return loss, weights, their mean, and bytes, of each rank."""

    def on_rank(group):
        with Session(group, seed=3) as ranks:
            generator = torch.Generator().manual_seed(10 + ranks.rank)
            x = torch.randn(8, 4, generator=generator)
            y = torch.randint(3, (8,), generator=generator)
            model = ranks.replicate(linear(), weights=words)
            optimizer = make(model.parameters(), **(options or SGD))
            losses = []
            for _ in range(steps):
                optimizer.zero_grad()
                losses.append(float(ranks.backward(functional.cross_entropy(model(x), y))))
                optimizer.step()
            own = model.weight.detach().clone()
            with ranks.consensus():
                mean = model.weight.detach().clone()
            assert torch.equal(own, model.weight)
            return losses, own, mean, ranks.take_weight_bytes()

    return run_ranks(size, on_rank)


def test_a_mean_in_every_step_of_gradient_descent_is_the_sum_of_gradients():
    merged, summed = learn("every(1)+mean"), learn(None)
    for (losses, own, mean, _), (others, weight, same, _) in zip(merged, summed, strict=True):
        torch.testing.assert_close(own, weight, rtol=1e-6, atol=1e-6)
        assert torch.equal(mean, own)
        assert torch.equal(same, weight)
        # Of one model the loss is that of all; of own models that of a rank, for no message.
        assert others == summed[0][0]
        assert losses is merged[0][0] or losses != merged[0][0]
    means = [sum(column) / 3 for column in zip(*(each[0] for each in merged), strict=True)]
    assert summed[0][0] == pytest.approx(means, rel=1e-5)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(
    "words",
    [
        *("every(4)+mean", "every(4)+int8+mean", "every(2)+pairs+own-moments", "every(2)+ring"),
        *("int8", "int8+machines(2)"),
    ],
)
def test_models_differ_between_merges_and_their_mean_does_not(words, size):
    found = learn(words, size=size, steps=5, make=torch.optim.Adam, lr=0.05)
    differ = size > 1 and not words.startswith("int8")
    assert torch.equal(found[0][1], found[-1][1]) != differ
    for _, _, mean, sent in found:
        assert torch.equal(mean, found[0][2])
        assert bool(sent) == (size > 1)
    if differ:
        torch.testing.assert_close(found[0][2], sum(each[1] for each in found) / size)


@pytest.mark.parametrize(
    ("make", "options"), [(torch.optim.SGD, SGD), (torch.optim.AdamW, {"lr": 0.05})]
)
def test_values_that_matter_are_known_from_optimizers_of_torch(make, options):
    exact, told = (learn(words, make=make, **options) for words in (None, "changed(0)"))
    for (_, weight, _, _), (_, own, _, _) in zip(exact, told, strict=True):
        assert torch.equal(own, weight)
    few = learn("changed(0.5)", make=make, **options)
    assert few[0][3] < told[0][3]
    assert not torch.equal(few[0][1], few[1][1])


@pytest.mark.parametrize(("name", "make"), [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam)])
def test_a_gradient_moves_a_weight_as_in_the_built_in_trainer(name, make):
    ours, theirs = linear(), linear()
    optimizer = build_optimizer(name, ours.parameters(), lr=0.1, weight_decay=0.0)
    other = make(theirs.parameters(), **(SGD if name == "sgd" else {"lr": 0.1}))
    known = TorchOptimizer(theirs)
    assert known.divisor(theirs.weight) == 0
    known.optimizer = other
    for step in range(1, 4):
        for each in (*ours.parameters(), *theirs.parameters()):
            each.grad = torch.full_like(each, 0.5 / step)
        optimizer.step()
        other.step()
        divisor = torch.as_tensor(known.divisor(theirs.weight))
        expected = torch.as_tensor(optimizer.divisor(ours.weight)) / 0.1
        torch.testing.assert_close(divisor, expected, rtol=1e-5, atol=0, check_dtype=False)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Adadelta", {}),
        ("RMSprop", {"alpha": 0.1}),
        ("RMSprop", {"alpha": 0.1, "centered": True}),
    ],
)
def test_moments_that_are_squares_stay_above_zero(name, options):
    """Where gradients shrink, what a round takes from squares may be more than there is.

    Centered, RMSprop takes the root of what squares have above the square of the mean.
    """

    def on_rank(group):
        with Session(group) as ranks:
            model = ranks.replicate(linear(), weights="every(4)+lag(3)+elastic(0.9)")
            optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01, **options)
            for step in range(24):
                optimizer.zero_grad()
                size = 100.0 if step % 8 == ranks.rank else 1e-3
                ranks.backward(size * model(torch.ones(2, 4)).square().mean())
                optimizer.step()
            states = [optimizer.state[each] for each in model.parameters()]
            kept = [value for each in states for key, value in each.items() if key in SQUARES]
            assert kept
            assert all(bool((value >= 0).all()) for value in kept)
            assert bool(model.weight.isfinite().all())

    run_ranks(2, on_rank)


@pytest.mark.parametrize("words", ["every(2)", "every(2)+ring", "changed(0.1)", "int8"])
def test_a_loss_concerns_the_models_that_it_reaches(words):
    """Two models in turn, where each loss reaches one of them, train as two by themselves."""

    def on_rank(group, seeds):
        with Session(group, seed=3) as ranks:
            models = [ranks.replicate(linear(seed), weights=words) for seed in seeds]
            optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in models]
            for _ in range(4):
                for model, optimizer in zip(models, optimizers, strict=True):
                    optimizer.zero_grad()
                    ranks.backward((model(torch.ones(2, 4)) + ranks.rank).square().mean())
                    optimizer.step()
            return [each.weight.detach().clone() for each in models]

    both, one, other = (run_ranks(2, partial(on_rank, seeds=own)) for own in ([1, 2], [1], [2]))
    for found, *alone in zip(both, one, other, strict=True):
        assert torch.equal(found[0], alone[0][0])
        assert torch.equal(found[1], alone[1][0])


def test_a_refused_replicate_changes_nothing():
    def on_rank(group):
        with Session(group) as ranks:
            model, other = (ranks.replicate(linear(), weights="every(2)") for _ in range(2))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for words, wrong in (("every(3)", torch.nn.Sequential(other)), ("every", model)):
                with torch.no_grad():
                    model.bias.fill_(ranks.rank)
                with pytest.raises(InputError):
                    ranks.replicate(wrong, weights=words)
                assert torch.equal(model.bias, torch.full((3,), float(ranks.rank)))
            for _ in range(2):
                optimizer.zero_grad()
                ranks.backward((model(torch.ones(2, 4)) + ranks.rank).square().mean())
                optimizer.step()
            return model.weight.detach().clone()

    assert torch.equal(*run_ranks(2, on_rank))


@pytest.mark.parametrize("replicates", [False, True])
def test_messages_on_their_way_are_waited_for_at_the_end(replicates):
    def on_rank(group):
        open_works, plain = [], group.transfer

        def transfer(*them):
            return [_Counted(each, open_works) for each in plain(*them)]

        group.transfer = transfer
        with Session(group) as ranks:
            model = ranks.replicate(linear(), weights="every(4)+lag(4)+corrected")
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(5):
                optimizer.zero_grad()
                ranks.backward(model(torch.ones(2, 4)).square().mean())
                optimizer.step()
            before = len(open_works)
            if replicates:
                ranks.replicate(model, weights="int8")
                return before, len(open_works)
        return before, len(open_works)

    for before, after in run_ranks(3, on_rank):
        assert before > 0
        assert after == 0


class _Counted:
    """A message that is in a list until it is waited for."""

    def __init__(self, work, open_works):
        self._work, self._open = work, open_works
        open_works.append(self)

    def wait(self):
        self._open.remove(self)
        self._work.wait()


def test_a_closure_may_call_backward_in_the_step():
    def on_rank(group, is_closure):
        with Session(group) as ranks:
            model = ranks.replicate(linear(), weights="every(2)")
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

            def evaluate():
                optimizer.zero_grad()
                return ranks.backward((model(torch.ones(2, 4)) + ranks.rank).square().mean())

            for _ in range(3):
                if is_closure:
                    optimizer.step(evaluate)
                else:
                    evaluate()
                    optimizer.step()
            return model.weight.detach().clone()

    closed, plain = (run_ranks(2, partial(on_rank, is_closure=own)) for own in (True, False))
    for one, other in zip(closed, plain, strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(*closed)


def twice(ranks, model):
    for _ in range(2):
        ranks.backward(model(torch.ones(2, 4)).square().mean())


def unsummed(ranks, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()


def stepped_twice(ranks, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ranks.backward(model(torch.ones(2, 4)).square().mean())
    optimizer.step()
    optimizer.step()


def partly(ranks, model):
    optimizer = torch.optim.SGD([model.weight], lr=0.1)
    ranks.backward(model(torch.ones(2, 4)).square().mean())
    optimizer.step()


def curved(ranks, model):
    optimizer = torch.optim.LBFGS(model.parameters())
    optimizer.step(lambda: ranks.backward(model(torch.ones(2, 4)).square().mean()))


def centered(ranks, model):
    optimizer = torch.optim.RMSprop(model.parameters(), centered=True)
    ranks.backward(model(torch.ones(2, 4)).square().mean())
    optimizer.step()


def another(ranks, model):
    ranks.replicate(torch.nn.Sequential(model), weights="every(3)")


def of_sums(ranks, model):
    ranks.replicate(torch.nn.Sequential(model))


@pytest.mark.parametrize(
    ("words", "work", "sentence"),
    [
        ("every", None, "weights every needs a whole number of at least 1; write every(1)"),
        ("every(2)", twice, "no optimizer of torch.optim stepped it in between; call"),
        (
            "every(2)+ring",
            unsummed,
            "optimizer.step() was called for a model with weights='every(2)",
        ),
        ("every(2)+elastic(0.5)", unsummed, "but ranks.backward was not since its last step; call"),
        ("every(2)", stepped_twice, "once before each step, in place of loss.backward()"),
        ("every(2)", partly, "holds some weights of a model with weights='every(2)+mean', whose"),
        ("every(2)", curved, "does not go with LBFGS, whose steps are not known to follow one"),
        (
            "every(2)+int8",
            centered,
            (
                "does not go with RMSprop(centered=True), whose steps are "
                "divided by a difference that a code takes for zero; use centered=False, or"
            ),
        ),
        ("every(2)", of_sums, "weights=None has parameters of another replicated model; replicate"),
        ("every(2)", another, "weights='every(3)' has parameters of another replicated model;"),
    ],
)
def test_what_would_never_merge_is_refused(words, work, sentence):
    def on_rank(group):
        with Session(group) as ranks:
            work(ranks, ranks.replicate(linear(), weights=words))

    with pytest.raises(InputError, match=re.escape(sentence)):
        run_ranks(2, on_rank)


def told(text):
    """Test accuracy and kB that the example prints."""
    found = re.search(r"^test ([\d.]+), ([\d.]+) kB sent by rank 0$", text, re.MULTILINE)
    assert found, text
    return float(found[1]), float(found[2])


@pytest.mark.parametrize(("size", "words"), [(1, "every(8)"), (3, "every(8)+groups(2)")])
def test_the_example_trains_on_ranks_that_draw_their_data(
    size, words, repository, capsys, monkeypatch
):
    text = (repository / "examples/own_data.py").read_text("utf-8")
    assert len([line for line in text[text.index("import sys") :].split("\n") if line]) <= 25
    monkeypatch.setattr(sys, "argv", ["own_data.py", words])

    def on_rank(group):
        names = {"dg": SimpleNamespace(init=lambda: Session(group))}
        exec(text.replace("import distgnn as dg", ""), names)

    run_ranks(size, on_rank)
    accuracy, sent = told(capsys.readouterr().out)
    assert accuracy > 0.9
    assert (sent > 0) == (size > 1)


@pytest.mark.mpi
def test_the_example_trains_on_three_processes(repository, tmp_path, mpirun):
    program = repository / "examples/own_data.py"
    done = subprocess.run(
        [mpirun, "-n", "3", "--oversubscribe", "--allow-run-as-root", sys.executable, program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    accuracy, sent = told(done.stdout)
    assert accuracy > 0.9
    # 30 merges of 1474 weights and their moments, of which a rank of three sends 4/3.
    assert sent == pytest.approx(30 * 3 * 1474 * 4 * 4 / 3 / 1e3, rel=1e-3)
