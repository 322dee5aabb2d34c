"""Codecs in words: what they stand for, their canonical text, and what is said of mistakes."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distgnn.datasets import InputError
from distgnn.exchange.codec import EXACT, Adaptation, CodecSpec, HaloCodecs
from distgnn.exchange.rule import HaloRule, Rota, Rule
from distgnn.exchange.spared import Gate, Spared
from distgnn.training.config.codecs import halo_text, parse_halo, parse_weights, weights_text
from distgnn.weights.rule import WeightRule

INT8, INT4 = CodecSpec(8), CodecSpec(4)
NEAR = CodecSpec(4, is_random=False)

_GRADIENTS = "gradients, or changes of models,"
CODECS = "what rows are sent as: fp32, bf16, int8, int4, int2, int1"

MEANINGS = [
    ("exact", HaloCodecs(), "exact"),
    ("fp32", HaloCodecs(), "exact"),
    ("bf16", HaloCodecs(CodecSpec(16), CodecSpec(16)), "bf16"),
    ("int8", HaloCodecs(INT8, INT8), "int8"),
    ("int8(round=random)", HaloCodecs(INT8, INT8), "int8"),
    ("int2", HaloCodecs(CodecSpec(2), CodecSpec(2)), "int2"),
    ("int1", HaloCodecs(CodecSpec(1), CodecSpec(1)), "int1"),
    ("int4(round=near)", HaloCodecs(NEAR, NEAR), "int4(round=near)"),
    ("fwd:int8", HaloCodecs(INT8, EXACT), "fwd:int8"),
    ("fwd:exact+bwd:int8", HaloCodecs(EXACT, INT8), "bwd:int8"),
    ("bwd:int4 + fwd:int8", HaloCodecs(INT8, INT4), "fwd:int8+bwd:int4"),
    (" fwd : int4 ( round = near ) + bwd:int8", HaloCodecs(NEAR, INT8), None),
]


@pytest.mark.parametrize(("text", "codecs", "canonical"), MEANINGS)
def test_words_stand_for_codecs_of_both_directions(text, codecs, canonical):
    rule = HaloRule(forward=Rule(codec=codecs.forward), backward=Rule(codec=codecs.backward))
    assert parse_halo(text) == rule
    assert halo_text(rule) == (canonical or "fwd:int4(round=near)+bwd:int8")


ADAPTIVE = [
    ("adapt(2|4|8,bits=4)", "adapt(2|4|8,every=50,bits=4)", CodecSpec(4, adaptation=Adaptation())),
    (
        "adapt(4|8, every=9, error=0.1, by=layer, round=near)",
        "adapt(4|8,every=9,error=0.1,by=layer,round=near)",
        CodecSpec(8, is_random=False, adaptation=Adaptation((4, 8), 9, 0.1, "layer")),
    ),
]


@pytest.mark.parametrize(("text", "canonical", "codec"), ADAPTIVE)
def test_words_stand_for_bits_that_adapt(text, canonical, codec):
    rule = parse_halo(text)
    assert rule == HaloRule(forward=Rule(codec=codec), backward=Rule(codec=codec))
    assert halo_text(rule) == canonical
    assert parse_halo(canonical) == rule
    assert rule.is_adaptive
    assert not rule.plain.is_adaptive
    assert parse_halo(f"bwd:{text}").forward == Rule()


LATER = [
    ("int4+at(30)+int8+at(60)+exact", None),
    ("exact+at(7)+fwd:int8+bwd:int4(round=near)", None),
    ("int4+at(3)+int4(round=random) + at( 5 ) + int8", "int4+at(5)+int8"),
    ("auto", None),
    ("auto(loss=0.005, every=10)", "auto"),
    ("auto(loss=0.01,every=5)", None),
]


@pytest.mark.parametrize(("text", "canonical"), LATER)
def test_words_stand_for_codes_that_follow_each_other(text, canonical):
    assert halo_text(parse_halo(text)) == (canonical or text)
    assert parse_halo(halo_text(parse_halo(text))) == parse_halo(text)


def test_codes_take_over_in_their_epochs():
    rule = parse_halo("int4+at(30)+fwd:int8+at(60)+exact")
    found = [
        rule.codec_in(epoch, is_backward=way).text
        for epoch in (0, 29, 30, 59, 60, 999)
        for way in (False, True)
    ]
    assert found == ["int4"] * 4 + ["int8", "exact"] * 2 + ["exact"] * 4
    assert rule.is_synchronous
    assert rule.codecs.is_random
    shares = rule.codec_shares(100, is_backward=False)
    assert [(codec.text, float(share)) for codec, share in shares] == [
        ("int4", 0.3),
        ("int8", 0.3),
        ("exact", 0.4),
    ]
    assert [float(share) for _, share in rule.codec_shares(40, is_backward=True)] == [0.75, 0.25, 0]


def specs():
    return st.builds(CodecSpec, st.sampled_from([32, 16, 8, 4, 2, 1]), st.booleans())


def percent(number):
    return number / 100


def rules():
    rows = st.builds(Rota, st.sampled_from(["rows", "peers", "random"]), st.integers(2, 99))
    together = st.integers(2, 9).flatmap(
        lambda period: st.builds(
            Rota, st.just("together"), st.just(period), st.integers(1, period - 1)
        )
    )
    memories = st.sampled_from([{}, {"is_cached": False}, {"smoothing": 0.25}, {"has_trend": True}])
    thresholds = st.floats(0, 1e6).map(lambda value: float(f"{value:.12g}"))
    gates = st.builds(
        Gate, thresholds, st.sampled_from(["any", "half", "mean"]), st.integers(0, 9)
    ).map(lambda gate: {"gate": gate})
    gates |= st.builds(
        Gate, st.just(0.0), st.just("mean"), st.integers(0, 9), st.integers(1, 99).map(percent)
    ).map(lambda gate: {"gate": gate})
    rotas = st.one_of(st.just(Rota()), st.just(Rota(period=0)), rows, together)
    deals = st.one_of(rotas.map(lambda rota: {"deal": rota}), gates)
    return st.builds(
        lambda memory, deal, **fields: Rule(**fields, **memory, **deal),
        memories,
        deals,
        spared=st.one_of(
            st.none(),
            st.builds(Spared, thresholds, st.booleans()),
            st.builds(Spared, best_of=st.integers(2, 99)),
            st.builds(Spared, limit=st.integers(1, 99).map(percent)),
        ),
        delay=st.integers(0, 9),
        refresh=st.integers(0, 9),
        is_scaled=st.booleans(),
        codec=specs(),
        remembers=st.sampled_from(["nothing", "error", "value"]),
    )


@given(st.builds(HaloRule, forward=rules(), backward=rules(), warm_up_epochs=st.integers(0, 9)))
def test_the_canonical_text_of_halos_reads_back(rule):
    text = halo_text(rule)
    assert parse_halo(text) == rule
    assert halo_text(parse_halo(text)) == text


RULES = [
    ("bins(5)+delay(5)", Rule(deal=Rota(period=5), delay=5)),
    ("delay(5) + bins(5, deal=rows)", Rule(deal=Rota(period=5), delay=5)),
    ("bins(3,deal=peers)+int4", Rule(deal=Rota("peers", 3), codec=INT4)),
    (
        "bins(10,deal=random)+drop+scale",
        Rule(deal=Rota("random", 10), is_cached=False, is_scaled=True),
    ),
    ("every(5,for=2)", Rule(deal=Rota("together", 5, 2))),
    ("every(4,for=4)", Rule()),
    ("bins(1,deal=peers)", Rule()),
    ("never", Rule(deal=Rota(period=0))),
    ("delay(1)+smooth(0.5)", Rule(delay=1, smoothing=0.5)),
    ("refresh(10)+int1+feedback", Rule(refresh=10, codec=CodecSpec(1), remembers="error")),
    ("int8+delta+keep", Rule(codec=INT8, remembers="value")),
    ("changed(0.05)", Rule(spared=Spared(threshold=0.05))),
    ("changed(0, decay=sqrt)+int4", Rule(spared=Spared(0.0, decays=True), codec=INT4)),
    ("best(10)+delay(2)", Rule(spared=Spared(best_of=10), delay=2)),
    ("budget(0.25)+int8", Rule(spared=Spared(limit=0.25), codec=INT8)),
    ("gate(q80,vote=mean)", Rule(gate=Gate(0.0, "mean", quantile=0.8))),
    ("gate(0.3)", Rule(gate=Gate(0.3))),
    ("gate(0.3,vote=0.25)", Rule(gate=Gate(0.3, 0.25))),
    ("gate(0.3,vote=half,most=4)", Rule(gate=Gate(0.3, "half", 4))),
    ("never+refresh(5)+trend", Rule(deal=Rota(period=0), refresh=5, has_trend=True)),
]


@pytest.mark.parametrize(("text", "rule"), RULES)
def test_words_stand_for_times_and_memories(text, rule):
    assert parse_halo(text) == HaloRule(forward=rule, backward=rule)
    assert parse_halo(f"warmup(7)+bwd:{text}").forward == Rule()
    assert parse_halo(f"warmup(7)+{text}") == HaloRule(
        forward=rule, backward=rule, warm_up_epochs=7
    )


@given(specs(), st.lists(specs(), max_size=3))
def test_the_canonical_text_of_weights_reads_back(codec, others):
    phases = [codec, *others]
    later = [(5 * n, b) for n, (a, b) in enumerate(pairwise(phases), 1) if a != b]
    rule = WeightRule(codec, later=tuple(later))
    assert parse_weights(weights_text(rule)) == rule
    for number, code in enumerate(phases):
        assert {rule.codec_in(5 * number), rule.codec_in(5 * number + 4)} == {code}


@given(st.text(alphabet="fbwd:int84(round=near)+, x\n\t", max_size=30))
def test_any_text_is_read_or_refused_in_one_sentence(text):
    try:
        codecs = parse_halo(text)
    except InputError as error:
        assert str(error).startswith("--halo ")  # noqa: PT017
    else:
        assert parse_halo(halo_text(codecs)) == codecs


@pytest.mark.parametrize(
    ("text", "codec"),
    [("sum", EXACT), ("exact", EXACT), ("sum+int8", INT8), ("int4(round=near)", NEAR)],
)
def test_weights_are_summed_exactly_or_in_a_code(text, codec):
    assert parse_weights(text) == WeightRule(codec)


def test_codes_of_weights_may_follow_each_other_or_be_chosen():
    assert parse_weights("sum+at(9)+int8") == WeightRule(later=((9, INT8),))
    assert parse_weights("int8 + at(9) + int8 + at(10) + sum") == WeightRule(
        INT8, later=((10, EXACT),)
    )
    assert parse_weights("auto") == WeightRule(is_chosen=True)
    assert weights_text(WeightRule(is_chosen=True)) == "auto"


REFUSED = [
    (
        "int3",
        f"--halo has no item 'int3'; {CODECS}",
    ),
    (
        "fwd:int8+bwd:bf61",
        f"--halo has no item 'bf61' at character 14 (did you mean bf16?); {CODECS}",
    ),
    ("INT8", "--halo has no item 'INT8' (did you mean int8?); what rows are sent as: "),
    ("int4+at(30)", "--halo at(30) says from which epoch on the words after it hold; write codes"),
    ("int4+at(0)+int8", "--halo int4+at(0)+int8 has at(0); epochs ascend, from 1"),
    ("int4+at(9)+int8+at(9)+int2", "--halo int4+at(9)+int8+at(9)+int2 has at(9) after at(9); ep"),
    ("int4+at(9)+int5", "--halo has no item 'int5' at character 12"),
    (
        "delay(1)+at(9)+int4",
        "--halo delay(1)+at(9)+int4 has at(9) between words that are not codes alone; use codes",
    ),
    ("auto+at(9)+int4", "--halo auto+at(9)+int4 has at(9) between words that are not codes alone"),
    ("auto+delay(1)", "--halo auto+delay(1) says more than auto, which chooses the codes of both"),
    ("fwd:auto", "--halo fwd:auto says more than auto, which chooses the codes of both directions"),
    ("adapt", "--halo adapt needs 2|4|8 or 2|4 or 4|8 or 2|8; write adapt(2|4|8)"),
    ("adapt(2|4|8)", "--halo adapt has no budget; add bits or error, as in adapt(2|4|8,bits=4)"),
    (
        "adapt(2|4|8,bits=4,error=0.1)",
        "--halo adapt has two budgets, error and bits; keep one, as in adapt(2|4|8,bits=4)",
    ),
    (
        "adapt(2|8,bits=4)",
        "--halo adapt gives 2 or 8 bits to rows, so that its budget is no 4 bits; use bits=2 or 8",
    ),
    ("int8+int4", "--halo int8+int4 says twice what rows are sent as; keep one"),
    ("int8+bwd:int4", "--halo int8+bwd:int4 says twice what rows are sent as; keep one"),
    (
        "fwd:int8+bwd:int8+int4(round=near)",
        "--halo bwd:int8+int4(round=near) says twice what rows are sent as; keep one",
    ),
    (
        "up:int8",
        "--halo has no direction 'up'; use fwd for rows and sums, bwd for gradients, or none",
    ),
    ("int8+fwb:int4", "--halo has no direction 'fwb' at character 6 (did you mean fwd?); use fwd "),
    (
        "int8(rond=near)",
        "--halo int8 has no argument 'rond' at character 6 (did you mean round?); it takes round",
    ),
    (
        "int8(round=up)",
        "--halo int8 has round=up at character 6; round is random or near",
    ),
    ("int8(round=neat)", "--halo int8 has round=neat at character 6 (did you mean near?); round "),
    ("int8(round=near,round=near)", "--halo int8 has the argument 'round' at character 17 twice"),
    (
        "int1(round=near)",
        "--halo int1 takes no arguments, got 'round' at character 6; write int1",
    ),
    ("", "--halo '' ends where a word is expected"),
    ("int8+", "--halo 'int8+' ends where a word is expected"),
    ("fwd:", "--halo 'fwd:' ends where a word is expected"),
    ("int8(round=near", "--halo 'int8(round=near' ends where ',' or ')' is expected"),
    ("int8(near)", "--halo int8 has no argument 'near' at character 6; it takes round"),
    ("int8()", "--halo 'int8()' has ')' at character 6, where a key or a value is expected"),
    ("bins", "--halo bins needs a whole number of at least 1 and below 4097; write bins(1)"),
    ("bins(0)", "--halo bins has 0 at character 6; it is a whole number of at least 1 and below"),
    ("bins(5000)", "--halo bins has 5000 at character 6; it is a whole number of at least 1 and b"),
    ("bins(x)", "--halo bins has x at character 6; it is a whole number of at least 1 and below"),
    (
        "bins(5,deal=row)",
        "--halo bins has deal=row at character 8 (did you mean rows?); deal is ro",
    ),
    (
        "int8+smooth(1)",
        "--halo smooth has 1 at character 13; it is a number of at least 0 and belo",
    ),
    (
        "bins(5)+every(3)",
        "--halo bins(5)+every(3) says twice which rows travel; keep on",
    ),
    ("changed(inf)", "--halo changed has inf at character 9; it is a number of at least 0 and b"),
    ("changed(0.1)+best(2)", "--halo changed(0.1)+best(2) says twice which of them stay; "),
    ("gate(0.1)+bins(2)", "--halo gate(0.1)+bins(2) says twice which rows travel; ke"),
    ("keep+smooth(0.5)", "--halo keep+smooth(0.5) says twice what counts between turns; k"),
    ("feedback+delta", "--halo feedback+delta says twice what the code remembers; keep one"),
    ("every(3,for=5)", "--halo every(3,for=5) lets rows travel in 5 of 3 epochs; for is at most 3"),
    (
        "fwd:warmup(3)",
        "--halo fwd:warmup(3) warms up in one direction of the pass only; write warm",
    ),
    ("int8(round=)", "--halo 'int8(round=)' has ')' at character 12, where a value is expected"),
    ("int8,int4", "--halo 'int8,int4' has ',' at character 5, where '+' or the end is expected"),
]


@pytest.mark.parametrize(("text", "sentence"), REFUSED)
def test_mistakes_are_named_with_their_place(text, sentence):
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}"):
        parse_halo(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fwd:int8", "--weights has no directions, got 'fwd:'; leave it out"),
        ("sum+at(10)+", "--weights 'sum+at(10)+' ends where a word is expected"),
        ("sum+at(3)++int4", "--weights 'sum+at(3)++int4' has '+' at character 11, where a word"),
        ("sum+at(0)+int4", "--weights sum+at(0)+int4 has at(0); epochs ascend, from 1"),
        ("sum+at(9)+int4+at(9)+sum", "--weights sum+at(9)+int4+at(9)+sum has at(9) after at(9); "),
        (
            "xyz",
            (
                f"--weights has no item 'xyz'; {CODECS.replace('rows', _GRADIENTS)}, auto;"
                " what becomes of them: sum, mean, qadam, corrected, lerp, elastic,"
                " momentum; when models are merged, or values told: every,"
                " changed-gradient, changed; with whom: all, pairs, ring, groups;"
                " how many steps a merge takes: lag;"
                " what becomes of moments: own-moments;"
                " how steps move: travel;"
                " where gradients are added up first: machines;"
                " when other codes take over: at"
            ),
        ),
    ],
)
def test_weights_have_words_of_their_own(text, sentence):
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}") as error:
        parse_weights(text)
    assert len(str(error.value)) < 500
