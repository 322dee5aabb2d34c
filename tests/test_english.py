"""The check of the English: what it finds, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import english
import pytest

LONG = " ".join(["word"] * 31)
FITS = " ".join(["word"] * 30)


def texts_of_python(text: str) -> list[str]:
    return [problem.text for problem in english.problems_of_python(text)]


@pytest.mark.parametrize("word", sorted(english.FIRST_WORDS))
@pytest.mark.parametrize(
    "source",
    [
        '"""{} it is."""\n',
        'class One:\n    """{} it is."""\n',
        'def one():\n    """{} it is."""\n',
        'class One:\n    def one(self):\n        """{} it is."""\n',
        'class One:\n    size: int\n    """{} it is."""\n',
        'SIZE = 1\n"""{} it is."""\n',
    ],
)
def test_a_docstring_begins_with_a_verb_or_a_noun(word: str, source: str) -> None:
    assert texts_of_python(source.format(word)) == [f"a docstring begins with {word!r}"]
    assert texts_of_python(source.format("Sum")) == []


def test_a_function_returns_to_its_caller_and_tells_others() -> None:
    source = 'def one():\n    """Tell {}."""\n'
    for said in ("whether it is", "how many there are"):
        told = f"Tell {said.split()[0]}"
        sentence = f"a docstring begins with {told!r}, not with 'Return'"
        assert texts_of_python(source.format(said)) == [sentence]
    assert texts_of_python(source.format("the other ranks why this one ends")) == []


@pytest.mark.parametrize("word", sorted(english.FIRST_WORDS_OF_ENTRIES))
@pytest.mark.parametrize("section", ["Args", "Attributes"])
def test_an_argument_is_described_by_a_noun_phrase(word: str, section: str) -> None:
    source = (
        'def one(a, b):\n    """Add.\n\n'
        f"    {section}:\n        a: Number of rows,\n            of which.\n        b: {{}} rows."
        '\n    """\n'
    )
    assert english.problems_of_python(source.format(word)) == [
        (7, f"an entry begins with {word!r}: {word} rows.")
    ]
    assert texts_of_python(source.format("Number of")) == []


@pytest.mark.parametrize("section", ["Returns", "Yields"])
def test_what_is_returned_is_described_by_a_noun_phrase(section: str) -> None:
    source = f'def one():\n    """Add.\n\n    {section}:\n        {{}} sum.\n    """\n'
    assert texts_of_python(source.format("What is the")) == [
        "an entry begins with 'What': What is the sum."
    ]
    assert texts_of_python(source.format("The")) == []


def test_a_long_sentence_is_told_with_its_line() -> None:
    source = f'def one():\n    """Add.\n\n    Short. A {FITS}\n    {{}}.\n    """\n'
    assert english.problems_of_python(source.format("end")) == [
        (4, "a sentence has 32 words: A word word word word word word word ...")
    ]
    assert texts_of_python(f'"""{FITS}."""') == []
    assert texts_of_python(f'"""{FITS}. A{FITS}. `x` {FITS[5:]}."""') == []
    entry = f'def one(a):\n    """Add.\n\n    Args:\n        a: {LONG}.\n    """\n'
    assert texts_of_python(entry) == [
        "a sentence has 31 words: word word word word word word word word ..."
    ]


def test_list_items_paragraphs_and_code_are_sentences_of_their_own() -> None:
    half = " ".join(["word"] * 16)
    source = f'"""Add.\n\n{half}\n\n{half}\n- {half}\n- {half}\n"""\n'
    assert texts_of_python(source) == []
    assert texts_of_python(f'"""Add `{LONG}` to it."""') == []
    assert texts_of_python(f'"""Add.\n\n    python add.py {LONG}\n\nEnd.\n"""') == []
    assert texts_of_python(f'"""Add.\n\nReferences:\n    {LONG}.\n"""') == []
    assert texts_of_python(f'"""Add.\n\n| {half} |\n|---|\n| {half} |\n"""') == []


def test_sentences_and_cells_of_a_readme_have_a_limit() -> None:
    cell = " ".join(["word"] * 20)
    text = f"# {LONG}\n{FITS}\n\n```\n{LONG}\n```\n- {FITS}\n- {FITS}\n\n| a | {cell} |\n"
    assert english.problems_of_markdown(text) == []
    assert english.problems_of_markdown(f"- **Fast.** A {FITS[10:]}. **A b.** A\n") == []
    text = f"# A\n{LONG}\n\n- {LONG}\n\n| a | {cell} word |\n"
    assert [problem.line for problem in english.problems_of_markdown(text)] == [2, 4, 6]
    link = f"[{FITS}](https://example.org/a/b) end.\n"
    assert [problem.text[:21] for problem in english.problems_of_markdown(link)] == [
        "a sentence has 31 wor"
    ]


def test_folders_are_checked_unless_they_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("distgnn/one", "distgnn/two"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text('"""What it is."""\n')
    (tmp_path / "README.md").write_text(f"{FITS}.\n")
    monkeypatch.setattr(english, "UNCHECKED", {"distgnn/two"})
    assert english.problems_of(tmp_path) == ["distgnn/one/a.py:1: a docstring begins with 'What'"]
    assert english.problems_of(tmp_path, ["distgnn/two"]) == [
        "distgnn/two/a.py:1: a docstring begins with 'What'"
    ]
