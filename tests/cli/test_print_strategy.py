"""`train --print-strategy`: what ranks would send each other."""

from __future__ import annotations

import re

import pytest


def test_a_preset_is_spelled_out_and_nothing_is_trained(distgnn, ring, here):
    outcome = distgnn("train", ring, "--print-strategy", "--preset", "cgx", "--run", "r")
    lines = outcome.out.splitlines()
    assert outcome.status == 0
    assert re.match(r"--preset +cgx: 4 bits a value .*, rounded at random$", lines[0])
    assert re.match(r"--halo +int4$", lines[1])
    assert re.search(r"--weights +int4\ngradients of weights +4 bits a value", outcome.out)
    assert "rows of fewer than 16 columns, ids, scores, maxima and sums of attention" in outcome.out
    assert "Markov et al., CGX" in outcome.out
    # 64 columns of 4 bits, and the least and the unit of the row in 2 bytes each.
    assert lines[-2].split() == ["64", "256", "36", "36"]
    assert not (here / "r").exists()


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("every(1)+mean", "and their mean after every step"),
        ("every(8,for=1)", "and their mean after every 8 steps, and after the next"),
        ("every(8,for=3)", "and their mean after every 8 steps, and after each of the next 3"),
        ("every(2)+pairs+own-moments", "of 2 each after every 2 steps"),
        (
            "every(4)+travel(20)",
            (
                "after every 4 steps at first; every 20 epochs they move by the accuracy that "
                "models lose on other ranks, where 5 points are allowed"
            ),
        ),
        (
            "every(4)+int8(round=near)+mean",
            (
                "found from their changes, 8 bits a value between the least and the largest of the "
                "row, rounded to the nearest, after every 4 steps"
            ),
        ),
    ],
)
def test_merges_of_models_are_put_into_words(words, meaning, distgnn, ring):
    outcome = distgnn("train", ring, "--print-strategy", "--weights", words)
    assert outcome.status == 0, outcome
    lines = {line[:22].strip(): line[22:].strip() for line in outcome.out.splitlines()}
    assert lines["gradients of weights"].startswith("none; each rank has a model of its own")
    assert lines["gradients of weights"].endswith(meaning)


def test_json_holds_the_canonical_words_and_the_bytes_of_a_row(distgnn, ring):
    words = ("--halo", "bwd:bf16+fwd:int1", "--hidden", 100, "--json")
    values = distgnn("train", ring, "--print-strategy", *words).json
    assert (values["preset"], values["halo"]) == (None, "fwd:int1+bwd:bf16")
    assert values["forward"].startswith("1 bit a value")
    assert values["backward"] == "bfloat16, rounded to the nearest"
    assert {"columns": 100, "exact": 400, "forward": 17, "backward": 200} in values["row_bytes"]
    assert [paper.split(" ")[0] for paper in values["papers"]] == ["Seide", "Kalamkar"]
    assert "halo_bytes_per_epoch" not in values


def test_a_rule_of_turns_and_memories_is_put_into_words(distgnn, ring):
    words = ("--halo", "warmup(2)+fwd:bins(4)+delay(1)+int4+feedback+bwd:never")
    outcome = distgnn("train", ring, "--print-strategy", *words)
    assert outcome.status == 0, outcome
    lines = {line[:17].strip(): line[17:].strip() for line in outcome.out.splitlines()}
    assert lines["warm-up"] == "2 epochs with exact rows"
    assert lines["gradients of rows"] == "never sent"
    assert lines["rows and sums"].endswith(
        "so that the mean stays; each row in one of 4 epochs; used 1 epoch after "
        "they were sent; with the error of the last code added"
    )


def test_a_preset_that_sends_no_rows_says_so(distgnn, ring):
    words = ("--preset", "grappa", "--print-strategy")
    lines = distgnn("train", ring, *words).out.splitlines()
    found = {line[:22].strip(): line[22:].strip() for line in lines if line.startswith("--")}
    assert found["--algorithm"] == "0c"
    assert found["--coverage-correction"] == "0.5"
    values = distgnn("train", ring, *words, "--json").json
    assert values["settings"] == {"algorithm": "0c", "coverage_correction": 0.5}
    assert values["forward"] == values["backward"] == "never sent"


def test_values_that_decide_are_put_into_words(distgnn, ring):
    words = ("--halo", "fwd:budget(0.25)+bwd:gate(q80,vote=mean)", "--print-strategy", "--json")
    values = distgnn("train", ring, *words).json
    assert values["forward"].endswith("those that changed most, in 25 % of the bytes of all")
    assert values["backward"].endswith("on average changed by more than in 80 % of the last epochs")
    assert values["sends_at_most"]


def test_rows_that_travel_as_they_are_have_no_paper(distgnn, ring):
    values = distgnn("train", ring, "--print-strategy", "--json").json
    assert (values["halo"], values["forward"], values["papers"]) == ("exact", "as they are", [])


def test_of_a_partition_directory_the_bytes_of_an_epoch_are_counted(distgnn, ring_parts):
    words = ("--hidden", 64, "--layers", 3)
    values = distgnn("train", ring_parts, "--print-strategy", *words, "--json").json
    found = distgnn("inspect", ring_parts, *words, "--json").json
    assert values["halo_bytes_per_epoch"] == found["halo_bytes_per_epoch"] > 0
    assert values["exact_halo_bytes_per_epoch"] == found["halo_bytes_per_epoch"]
    assert values["eval_halo_bytes"] == found["eval_halo_bytes"]
    assert values["evaluation"] == "exact"
    assert values["weight_bytes_per_epoch"] == found["weight_bytes_per_epoch"] > 0
    coded = distgnn("train", ring_parts, "--print-strategy", *words, "--weights", "int8")
    assert re.search(r"weights per epoch .* by all ranks, [23]\.\d times fewer than", coded.out)
    voted = distgnn("train", ring_parts, "--print-strategy", "--preset", "selsync-weights")
    assert re.search(r"weights per epoch +at most \S+ \S+ by all ranks", voted.out)
    assert "their mean once gradients of a rank changed by more than a share of 0.05\n" in voted.out


def test_a_screened_evaluation_is_a_look_and_at_times_an_exact_one(distgnn, ring_parts):
    words = ("--hidden", 64, "--layers", 3, "--evaluation", "screened(int4)")
    found = distgnn("inspect", ring_parts, *words, "--json").json
    assert 0 < found["screened_halo_bytes"] < found["eval_halo_bytes"]
    command = ("train", ring_parts, "--print-strategy", *words)
    assert distgnn(*command, "--json").json["screened_halo_bytes"] == found["screened_halo_bytes"]
    shown = [distgnn(*command).out, distgnn("inspect", ring_parts, *words).out]
    for text in shown:
        assert re.search(
            r"per evaluation +\S+ \S+ screened, and .* where it is confirmed: .*most", text
        )
    exact = distgnn("inspect", ring_parts, "--evaluation", "exact", "--json").json
    assert exact["screened_halo_bytes"] is None


def test_a_mistake_is_named_as_in_training(distgnn, ring):
    outcome = distgnn("train", ring, "--print-strategy", "--halo", "int3")
    assert outcome.sentence.startswith("--halo has no item 'int3'; what rows are sent as:")


def test_training_needs_a_folder(distgnn, ring):
    sentence = "the following arguments are required: --run; see distgnn train --help"
    assert distgnn("train", ring).sentence == sentence


def test_of_codes_that_adapt_a_bound_is_counted(distgnn, ring_parts):
    words = ("--hidden", 64, "--layers", 3)
    adaptive = distgnn("train", ring_parts, "--print-strategy", "--preset", "adaqp", *words)
    assert re.search(r"rows per epoch +at most .* by all ranks, \d\.\d times fewer", adaptive.out)
    assert re.search(
        r"rows and sums +2, 4 or 8 bits a value .*; by the ranges of each row, measured every 50 "
        r"epochs, in at most the bytes of 4\n",
        adaptive.out,
    )
    chosen = ("--halo", "auto", "--weights", "auto", *words)
    for shown in (["inspect"], ["plan", "--bandwidth", "1GB/s", "--latency", "50us"]):
        text = distgnn(shown[0], ring_parts, *shown[1:], *chosen).out
        assert len(re.findall(r" at most [0-9.]+ \S+ (?:by all|in all)", text)) == 2
    text = distgnn("inspect", ring_parts, *words).out
    assert "by all ranks, exactly" in text
    assert "at most" not in text.partition("memory per rank")[0]
    later = distgnn("train", ring_parts, "--print-strategy", "--weights", "sum+at(9)+int4", *words)
    assert re.search(r"gradients of weights +as they are; from epoch 9 on 4 bits a val", later.out)
    auto = distgnn("train", ring_parts, "--print-strategy", "--weights", "auto", *words)
    assert re.search(r"gradients of weights +in a code that is chosen while the run tr", auto.out)
    auto = distgnn("train", ring_parts, "--print-strategy", "--halo", "auto", *words)
    assert re.search(r"rows per epoch +at most \S+ \S+ by all ranks\n", auto.out)
    assert "rows and sums         in codes that are chosen while the run trains" in auto.out


def test_codes_that_follow_each_other_are_spelled_out(distgnn, ring):
    words = ("--halo", "int4+at(30)+fwd:bf16", "--json")
    values = distgnn("train", ring, "--print-strategy", *words).json
    assert values["forward"].startswith("4 bits a value")
    assert values["forward"].endswith("; from epoch 30 on bfloat16, rounded to the nearest")
    assert values["backward"].endswith("; from epoch 30 on as they are")
    assert not values["sends_at_most"]
    assert [paper.split(" ")[0] for paper in values["papers"]] == ["Alistarh", "Kalamkar"]
