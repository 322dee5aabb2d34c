"""--halo and --preset on the command line: what is kept, said and predicted."""

from __future__ import annotations

import json

SMALL = ("--hidden", 20, "--layers", 3, "--epochs", 2)


def train(distgnn, ring, *flags):
    return distgnn("train", ring, "--run", "r", *SMALL, *flags)


def test_one_rank_trains_the_same_and_says_that_it_sends_nothing(distgnn, ring, here):
    plain = train(distgnn, ring)
    assert "one rank" not in plain.err
    losses = (here / "r/metrics.jsonl").read_text()
    coded = train(distgnn, ring, "--preset", "cgx", "--overwrite")
    assert "one rank: strategies send nothing" in coded.err.splitlines()
    pairs = zip(
        losses.splitlines(), (here / "r/metrics.jsonl").read_text().splitlines(), strict=False
    )
    for then, now in pairs:
        assert json.loads(then)["loss"] == json.loads(now)["loss"]
    kept = json.loads((here / "r/config.json").read_text())["train"]
    assert (kept["preset"], kept["halo"], kept["weights"]) == ("cgx", "int4", "int4")
    assert json.loads((here / "r/summary.json").read_text())["codec_error"] == 0


def test_a_run_goes_on_with_the_words_that_it_was_begun_with(distgnn, ring):
    assert train(distgnn, ring, "--halo", "bwd:int4+fwd:int8", "--quiet").status == 0
    again = ("--resume", "--quiet")
    refused = train(distgnn, ring, "--halo", "int8", *again)
    assert refused.sentence == (
        "cannot resume 'r' with other settings: halo (begun with fwd:int8+bwd:int4, now int8); "
        "use the same or another --run"
    )
    assert train(distgnn, ring, "--halo", "fwd:int8+bwd:int4", *again).status == 0


def test_a_preset_may_be_spelled_out_when_a_run_goes_on(distgnn, ring):
    assert train(distgnn, ring, "--preset", "cgx", "--quiet").status == 0
    both = ("--halo", "int4", "--weights", "int4")
    assert train(distgnn, ring, *both, "--resume", "--quiet").status == 0


def test_inspect_predicts_the_bytes_of_the_code(distgnn, ring_parts):
    exact = distgnn("inspect", ring_parts, *SMALL[:4], "--json").json
    coded = distgnn("inspect", ring_parts, *SMALL[:4], "--halo", "int8", "--json").json
    assert (exact["model"]["halo"], coded["model"]["halo"]) == ("exact", "int8")
    assert 0 < 2 * coded["halo_bytes_per_epoch"] < exact["halo_bytes_per_epoch"]
    assert coded["eval_halo_bytes"] == exact["eval_halo_bytes"]
    assert any(line.startswith("halo: rows travel as int8; ") for line in coded["savings"])
