"""Words of --evaluation: their meaning, their canonical text, and what is said of mistakes."""

from __future__ import annotations

import re

import pytest
from training import make_config

from distgnn.datasets import InputError
from distgnn.exchange.codec import CodecSpec
from distgnn.training.config.evaluation import Screening, parse_evaluation
from distgnn.training.config.settings import TrainConfig

NEAR = {bits: CodecSpec(bits, is_random=False) for bits in (16, 8, 4, 2, 1)}

MEANINGS = [
    ("screened", Screening(NEAR[8]), "screened(int8)"),
    (" screened ", Screening(NEAR[8]), "screened(int8)"),
    ("screened(int4)", Screening(NEAR[4]), "screened(int4)"),
    ("screened(bf16)", Screening(NEAR[16]), "screened(bf16)"),
    ("screened(margin=0.01)", Screening(NEAR[8], 0.01), "screened(int8, margin=0.01)"),
    ("screened(int2, margin=0)", Screening(NEAR[2], 0.0), "screened(int2, margin=0.0)"),
    ("screened( margin = 1e-3 ,int1 )", Screening(NEAR[1], 0.001), "screened(int1, margin=0.001)"),
]


@pytest.mark.parametrize(("text", "screening", "canonical"), MEANINGS)
def test_words_stand_for_a_codec_and_a_margin(text, screening, canonical):
    assert parse_evaluation(text) == screening
    assert screening.text == canonical
    assert parse_evaluation(canonical) == screening
    config = make_config(evaluation=text)
    assert config.evaluation == canonical
    assert TrainConfig.from_json(config.to_json()) == config


def test_exact_evaluation_has_no_screening():
    assert parse_evaluation(" exact ") is None
    assert make_config(evaluation=" exact").evaluation == "exact"
    assert make_config().screening is None


CODECS = "what screened rows are sent as: bf16, int8, int4, int2, int1"
FORM = "--evaluation must be exact, screened or screened(CODEC, margin=X), got "
REFUSED = [
    ("int8", f"{FORM}'int8'"),
    ("", f"{FORM}''"),
    ("screened(int8", f"{FORM}'screened(int8'"),
    ("screened(int8(round=near))", f"{FORM}'screened(int8(round=near))'"),
    ("exact(int8)", f"{FORM}'exact(int8)'"),
    ("screened(int3)", f"--evaluation has no item 'int3'; {CODECS}"),
    ("screened(exact)", f"--evaluation has no item 'exact'; {CODECS}"),
    ("screened()", "--evaluation '' ends where a word is expected"),
    ("screened(int8+int4)", "--evaluation int8+int4 says twice what screened rows are sent as"),
    ("screened(int8, int4)", "--evaluation screened(int8, int4) has two values for its codec; "),
    (
        "screened(margin=1, margin=2)",
        "--evaluation screened(margin=1, margin=2) has two values for its margin; keep one",
    ),
    *(
        (
            f"screened(margin={value})",
            f"--evaluation has margin={value}; a margin is at least 0 and finite, in units of ",
        )
        for value in ("-0.1", "inf", "nan", "wide", "")
    ),
]


@pytest.mark.parametrize(("text", "sentence"), REFUSED)
def test_mistakes_are_named(text, sentence):
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}"):
        make_config(evaluation=text)
