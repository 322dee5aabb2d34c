"""Settings of what ranks send each other: presets, canonical words, what is refused together."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from training import make_config

from distgnn.datasets import InputError
from distgnn.exchange.codec import EXACT_CODECS, CodecSpec, HaloCodecs
from distgnn.settings.fields import flag_of, settings_of
from distgnn.training.config.codecs import halo_text, parse_halo, parse_weights, weights_text
from distgnn.training.config.compatibility import check_length
from distgnn.training.config.presets import PRESETS
from distgnn.training.config.run import RunSettings
from distgnn.training.config.settings import TrainConfig


def test_rows_are_exact_unless_something_else_is_asked_for():
    config = make_config()
    assert (config.halo, config.preset) == ("exact", None)
    assert config.halo_codecs == EXACT_CODECS


def test_a_run_remembers_the_canonical_words():
    config = make_config(halo="bwd: int4 +fwd:int8(round=near)")
    assert config.halo == "fwd:int8(round=near)+bwd:int4"
    assert config.halo_codecs == HaloCodecs(CodecSpec(8, is_random=False), CodecSpec(4))
    assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_words_of_both_channels_in_canonical_form(name):
    preset = PRESETS[name]
    assert halo_text(parse_halo(preset.halo)) == preset.halo
    assert weights_text(parse_weights(preset.weights)) == preset.weights
    assert bool(preset.paper) == (name != "bsp")


@pytest.mark.parametrize("name", PRESETS)
def test_a_run_with_a_preset_is_the_run_with_its_words(name):
    config = make_config(preset=name)
    preset = PRESETS[name]
    plain = make_config(halo=preset.halo, weights=preset.weights, **preset.settings)
    assert config.halo == plain.halo
    assert config.halo_codecs == plain.halo_codecs
    assert plain.differences(config) == []
    assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_a_preset_names_the_strategy_of_one_channel_too():
    assert make_config(halo="cgx").halo == "int4"
    assert parse_weights("bytegrad").codec == CodecSpec(8, is_random=False)
    assert make_config(halo="bsp", weights="bsp").differences(make_config()) == []


def test_a_preset_and_its_own_words_agree():
    assert make_config(preset="cgx", halo="int4(round=random)").halo == "int4"


def test_a_preset_may_say_that_nothing_travels():
    config = make_config(preset="grappa")
    assert (config.algorithm, config.coverage_correction) == ("0c", 0.5)
    assert config.is_isolated
    assert make_config(preset="cofree", algorithm="0c").reweight_loss


SET = [
    (name, key, value)
    for name, preset in PRESETS.items()
    for key, value in {
        "halo": preset.halo,
        "weights": preset.weights,
        **preset.settings,
    }.items()
]
"""Settings of every preset, with its values."""
USUAL = {setting.name: setting.default for setting in settings_of(RunSettings)}
USUAL |= {"halo": "exact", "weights": "sum"}
OTHER = {"halo": "int4(round=near)", "weights": "bf16", "algorithm": "cd-7"}


def in_words(key, value):
    """A setting, as messages name it."""
    if isinstance(value, bool):
        return flag_of(key) if value else f"--no-{flag_of(key)[2:]}"
    return f"{flag_of(key)} {value}"


@pytest.mark.parametrize(("name", "key", "value"), SET)
def test_a_flag_beside_a_preset_agrees_with_it_or_is_refused(name, key, value):
    assert make_config(preset=name, **{key: value}) == make_config(preset=name)
    for given in {USUAL[key], OTHER.get(key, not value)} - {value}:
        with pytest.raises(InputError) as caught:
            make_config(preset=name, **{key: given})
        sentence = str(caught.value)
        assert sentence.startswith(f"--preset {name} ")
        assert f"{in_words(key, given)}; drop one" in sentence or (
            f"{in_words(key, given)} both say" in sentence
        )


def test_settings_of_presets_know_whether_they_were_given():
    unknown = {s.name for s in settings_of(RunSettings) if s.about and s.about.usual is not None}
    assert unknown == {key for preset in PRESETS.values() for key in preset.settings}


def test_a_resumed_or_copied_run_keeps_its_preset():
    config = make_config(preset="grappa")
    assert TrainConfig.from_json(config.to_json()) == config
    assert replace(config, seed=1).coverage_correction == 0.5
    assert (make_config().algorithm, make_config().reweight_loss) == ("cd-0", False)
    altered = {**config.to_json(), "algorithm": "cd-0"}
    with pytest.raises(InputError, match=r"^--preset grappa says --algorithm 0c, got"):
        TrainConfig.from_json(altered)


REFUSED = [
    (
        {"preset": "grappa", "algorithm": "cd-5"},
        "--preset grappa says --algorithm 0c, got --algorithm cd-5; drop one of the two",
    ),
    (
        {"preset": "grappa", "coverage_correction": 1.0},
        "--preset grappa says --coverage-correction 0.5, got --coverage-correction 1.0; drop one",
    ),
    ({"halo": "grappa"}, "--halo has no item 'grappa'"),
    (
        {"preset": "cgq"},
        "--preset must be one of bsp, bytegrad, cgx, adaqp, cgx-adaptive, pipegcn, sylvie, ",
    ),
    (
        {"preset": "cgx", "halo": "int8"},
        "--preset cgx and --halo int8 both say what rows are sent as; give one of them",
    ),
    (
        {"halo": "shadow-ma"},
        "--halo shadow-ma is the name of a preset that says nothing of --halo; use --preset shad",
    ),
    (
        {"weights": "pipegcn"},
        "--weights pipegcn is the name of a preset that says nothing of --weights; use --preset p",
    ),
    ({"halo": "cgxx"}, "--halo has no item 'cgxx' (did you mean cgx?); what rows are sent as: "),
    (
        {"halo": "fwd:cgx"},
        "--halo cgx at character 5 is the name of a whole strategy, int4; write it alone",
    ),
    (
        {"halo": "int4", "algorithm": "0c"},
        "--halo int4 has no effect with --algorithm 0c, where nothing travels; drop one of the two",
    ),
    (
        {"preset": "bytegrad", "algorithm": "0c"},
        "--halo int8(round=near) of --preset bytegrad has no effect with --algorithm 0c, where ",
    ),
    (
        {"halo": "int4", "algorithm": "cd-5"},
        "--halo int4 codes rows for the epoch in which they travel, but --algorithm cd-5 uses",
    ),
    (
        {"halo": "int4+feedback", "recompute": True},
        "--recompute would read other rows than --halo int4+feedback gave it before; use a codec",
    ),
    (
        {"halo": "delay(1)", "labels_as_input": 0.5},
        "--labels-as-input 0.5 would let rows that --halo delay(1) keeps hold labels that the",
    ),
    (
        {"halo": "bins(2)", "overlap": False},
        "--overlap off waits for the rows of an epoch, but --halo bins(2) uses those of others;",
    ),
    (
        {"halo": "warmup(2)"},
        "--halo warmup(2) warms up for nothing, as all rows travel as they are in every epoch;",
    ),
    (
        {"halo": "fwd:never+int8"},
        "--halo fwd:never+int8 says how rows travel that never do; keep never alone, or use every",
    ),
    (
        {"halo": "bins(2,deal=random)"},
        "--halo bins(2,deal=random) draws rows at random, which bounds the age of none; add drop",
    ),
    (
        {"halo": "bins(2)+scale"},
        "--halo bins(2)+scale scales the rows that travel for those that count as zeros, but",
    ),
    (
        {"halo": "delay(1)+drop"},
        "--halo delay(1)+drop drops rows between their turns, but all rows travel in every epoch",
    ),
    (
        {"halo": "refresh(5)"},
        "--halo refresh(5) refreshes rows that are exact in every epoch; leave refresh out, or",
    ),
    (
        {"halo": "bins(2)+feedback"},
        "--halo bins(2)+feedback remembers what a code missed, but rows travel as they are; add",
    ),
    (
        {"halo": "int4+delta+bins(2)+drop"},
        "--halo bins(2)+int4+delta+drop sends changes against what the receiver keeps; use keep",
    ),
    (
        {"halo": "delay(1)+smooth(0.5)", "model": "gat"},
        "--halo delay(1)+smooth(0.5) adds up the values of a row, but --model gat sends others;",
    ),
    (
        {"halo": "bins(2)+drop+scale", "aggregator": "max"},
        "--halo bins(2)+drop+scale adds up the values of a row, but --aggregator max sends others",
    ),
    (
        {"halo": "int4+delta", "model": "gatv2"},
        "--halo int4+delta adds up the values of a row, but --model gatv2 sends others; use bins",
    ),
    (
        {"halo": "adapt(2|4|8,bits=4)+delay(1)"},
        "--halo delay(1)+adapt(2|4|8,every=50,bits=4) gives bits to the rows of an epoch, which",
    ),
    (
        {"halo": "adapt(2|4|8,bits=4)", "start": "mlp(2)"},
        "--halo adapt(2|4|8,every=50,bits=4) measures messages that are the same ones in every ",
    ),
    (
        {"halo": "adapt(2|4|8,bits=4)", "overlap": False},
        "--overlap off measures codes of the same bits in every row, but --halo adapt(2|4|8,every",
    ),
    (
        {"halo": "adapt(2|4|8,bits=4,round=near)", "recompute": True},
        "--recompute would send rows again that --halo adapt(2|4|8,every=50,bits=4,round=near) may",
    ),
    (
        {"halo": "changed(0.1)+bins(2)+drop"},
        "--halo bins(2)+changed(0.1)+drop spares rows whose last value will do; use keep with",
    ),
    (
        {"halo": "best(4)+delay(1)+smooth(0.5)"},
        "--halo best(4)+delay(1)+smooth(0.5) spares rows whose last value will do; use keep with",
    ),
    (
        {"halo": "changed(0.1)+int4+feedback"},
        "--halo changed(0.1)+int4+feedback compares rows with what was told, which holds the",
    ),
    (
        {"halo": "changed(0.1)+delay(1)"},
        "--halo changed(0.1)+delay(1) tells how many rows follow in the epoch in which they are",
    ),
    ({"halo": "never+changed(0.1)"}, "--halo never+changed(0.1) says how rows travel that never"),
    (
        {"halo": "every(4)+trend"},
        "--halo every(4)+trend predicts rows from two refreshes for epochs in which they do not",
    ),
    (
        {"halo": "int4+refresh(4)+trend"},
        "--halo refresh(4)+int4+trend predicts rows from two refreshes for epochs in which they",
    ),
    (
        {"halo": "every(2)+delay(1)+refresh(4)+trend"},
        "--halo every(2)+delay(1)+refresh(4)+trend moves rows on in the epoch in which they are",
    ),
    (
        {"halo": "changed(0.1)", "aggregator": "max"},
        "--halo changed(0.1) sends some rows only, but --aggregator max sends values with the ids",
    ),
    (
        {"halo": "every(2)+refresh(4)+trend", "model": "gat"},
        "--halo every(2)+refresh(4)+trend adds up the values of a row, but --model gat sends",
    ),
    (
        {"halo": "gate(0.1)+drop"},
        "--halo gate(0.1)+drop drops rows between their turns, but all rows travel in every epoch",
    ),
    (
        {"halo": "changed(0.1)", "recompute": True},
        "--recompute would read other rows than --halo changed(0.1) gave it before; use a codec",
    ),
    (
        {"halo": "int4", "recompute": True},
        (
            "--recompute would send rows again that --halo int4 rounds at random; use "
            "int4(round=near), or drop --recompute"
        ),
    ),
    (
        # The recomputed pass takes numbers of messages, of which random numbers are made.
        {"halo": "bwd:int4", "recompute": True},
        (
            "--recompute would send rows again that --halo bwd:int4 rounds at random; use "
            "bwd:int4(round=near), or drop --recompute"
        ),
    ),
    (
        {"halo": "fwd:int8+bwd:int4", "recompute": True},
        (
            "--recompute would send rows again that --halo fwd:int8+bwd:int4 rounds at random; use "
            "fwd:int8(round=near)+bwd:int4(round=near), or drop --recompute"
        ),
    ),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED)
def test_what_does_not_go_together_is_refused(options, sentence):
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}"):
        make_config(**options)


@pytest.mark.parametrize("halo", ["exact", "bf16", "int1", "int4(round=near)"])
def test_rows_that_are_the_same_each_time_may_be_sent_again(halo):
    make_config(halo=halo, recompute=True)


def test_a_resumed_run_sends_what_it_was_begun_with():
    begun = make_config(halo="int8")
    assert begun.differences(make_config(halo="int8(round=random)")) == []
    assert begun.differences(make_config(halo="int4")) == ["halo (begun with int8, now int4)"]
    assert begun.differences(make_config()) == ["halo (begun with int8, now exact)"]


def test_a_run_that_begins_lasts_longer_than_its_warm_up_and_its_delay():
    check_length(make_config(halo="warmup(2)+delay(1)", epochs=4))
    with pytest.raises(InputError, match="--warm-up-epochs 3 leaves none of the 3 epochs to --al"):
        check_length(make_config(algorithm="cd-2", warm_up_epochs=3, epochs=3))
    with pytest.raises(InputError, match=r"warms up for all of the 2 epochs; use --epochs 3 or mo"):
        check_length(make_config(halo="warmup(2)+delay(1)", epochs=2))
    with pytest.raises(InputError, match="uses rows 3 epochs after they were sent"):
        check_length(make_config(halo="warmup(2)+delay(3)", epochs=5))
