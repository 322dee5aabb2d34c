from __future__ import annotations

import pytest
import torch
from graphs import cut, make_graph
from training import ends_of, make_config

from distgnn.comm.single import SingleGroup
from distgnn.comm.transports.staged import StagedGroup
from distgnn.gpu import dropout
from distgnn.kernels.seeds import MaskSeeds, mixed_seed
from distgnn.training.loop.replay import Called
from distgnn.training.loop.trainer import Trainer


def test_a_seed_has_its_place():
    draws = MaskSeeds()
    draws.seed, draws.epoch = 5, 2
    draws.places = torch.zeros(2, 2, dtype=torch.int64)
    seeds = [draws.next_seed() for _ in range(3)]
    assert seeds == draws.coming_seeds(3)
    assert [seed.place.data_ptr() - draws.places.data_ptr() for seed in seeds[:2]] == [0, 16]
    # There are more seeds than places: the kernel takes the number.
    assert seeds[2].place is None


def test_a_mask_is_drawn_by_what_lies_in_the_place(device):
    x, ids = torch.ones(40, 7, device=device), torch.arange(40, device=device)
    draws = MaskSeeds()
    draws.places = torch.zeros(1, 2, dtype=torch.int64, device=device)
    placed = draws.next_seed()
    for seed in (3, 2**64 - 1):
        mixed = mixed_seed(seed)
        draws.places[0, 0] = mixed - 2**64 if mixed >= 2**63 else mixed
        masks = []
        for given in (placed, seed):
            masks.append(torch.empty_like(x))
            dropout(x, ids, masks[-1], seed=given, probability=0.4)
        assert torch.equal(*masks)
        assert 0 < int((masks[0] == 0).sum()) < masks[0].numel()


def trainer_of(graph, device, **options):
    (part,) = cut(graph, 1)
    config = make_config(epochs=8, **options)
    group = StagedGroup(SingleGroup(), device)
    return Trainer(config, ends_of(graph), part, group, device=device)


def test_the_processor_takes_each_step():
    trainer = trainer_of(make_graph("random", num_vertices=20), torch.device("cpu"))
    assert isinstance(trainer.steps, Called)
    assert trainer.steps.take_note() is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_step_that_waits_is_not_recorded(monkeypatch):
    from distgnn.datasets import InputError

    trainer = trainer_of(make_graph("random", num_vertices=60), torch.device("cuda"))
    steps = trainer.steps
    step = steps._function
    monkeypatch.setattr(steps, "_function", lambda: torch.cuda.synchronize() or step())
    with pytest.raises(InputError, match=r"cannot be recorded .* use --replay off"):
        list(trainer.epochs())
