"""The English of docstrings and README files, checked by rules that need no judgement.

A docstring begins with a verb or a noun, and an argument is described by a noun phrase. A sentence
has at most 30 words, and a cell of a table at most 20. `python tests/english.py FOLDER ...` checks
folders that are not checked yet, too.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_WORDS = 30
MAX_CELL_WORDS = 20
ROOTS = ("distgnn", "partition", "datasets", "csrc", "tests", "examples")
FIRST_WORDS = {"What", "Of", "As", "That", "Likewise"}
# A function tells nobody but other ranks and users; to its caller it returns.
_TELLS_ITS_CALLER = re.compile(r"Tell (whether|how|whose|what|which|of|from)\b")
FIRST_WORDS_OF_ENTRIES = {"Of", "What", "As", "That"}
# Folders that are not checked. There are none, and it is to stay so.
UNCHECKED: set[str] = set()

_DESCRIBED = ("Args", "Returns", "Yields", "Attributes")
_SECTION = re.compile(r"(Args|Returns|Yields|Raises|Attributes|References|Examples?):$")
_ENTRY = re.compile(r"\*{0,2}\w+(?:, \*{0,2}\w+)*: ")
_SENTENCE_END = re.compile(r"[.!?]['\")*]*\s+(?=[\"'(`*]*[A-Z`])")
_LIST_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+")
_LINK = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
_CODE = re.compile(r"`+[^`]+`+")


class Problem(NamedTuple):
    """Something to rewrite, and its line in the file."""

    line: int
    text: str


class _Paragraph(NamedTuple):
    """Text that is read without a break; an entry describes an argument or what is returned."""

    line: int
    text: str
    is_entry: bool = False


def problems_of_python(text: str) -> list[Problem]:
    """Check the docstrings of a module, its classes, functions and attributes.

    Args:
        text: Source code.

    Returns:
        Problems in the order of the lines.
    """
    found: list[Problem] = []
    for line, docstring in _docstrings(ast.parse(text)):
        first = docstring.split(maxsplit=1)[:1]
        if first and first[0].rstrip(",") in FIRST_WORDS:
            found.append(Problem(line, f"a docstring begins with {first[0]!r}"))
        if told := _TELLS_ITS_CALLER.match(docstring):
            found.append(Problem(line, f"a docstring begins with {told[0]!r}, not with 'Return'"))
        for paragraph in _docstring_paragraphs(docstring, line):
            found.extend(_problems_of(paragraph))
    return sorted(found)


def problems_of_markdown(text: str) -> list[Problem]:
    """Check the sentences and the tables of a README file.

    Args:
        text: Markdown.

    Returns:
        Problems in the order of the lines.
    """
    found: list[Problem] = []
    for paragraph in _markdown_paragraphs(text):
        if not paragraph.text.startswith("|"):
            found.extend(_problems_of(paragraph))
            continue
        for cell in paragraph.text.strip().strip("|").split("|"):
            if (count := _num_words(cell)) > MAX_CELL_WORDS:
                found.append(Problem(paragraph.line, f"a cell has {count} words: {_start(cell)}"))
    return sorted(found)


def problems_of(root: Path, folders: Sequence[str] = ()) -> list[str]:
    """Check a source tree.

    Args:
        root: Root of the repository.
        folders: Folders to check alone, and whether or not they are in `UNCHECKED`.

    Returns:
        One line for each problem, with the file and the line.
    """
    found = []
    for path in sorted(_files(root)):
        shown = path.relative_to(root)
        folder = str(shown.parent)
        if folder not in folders if folders else folder in UNCHECKED:
            continue
        check = problems_of_python if path.suffix == ".py" else problems_of_markdown
        found.extend(f"{shown}:{line}: {text}" for line, text in check(path.read_text("utf-8")))
    return found


def _files(root: Path) -> Iterator[Path]:
    yield root / "README.md"
    for name in ROOTS:
        yield from (root / name).rglob("*.py")
        yield from (root / name).rglob("README.md")


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Find texts that stand alone: behind a header, or below an attribute."""
    with_body = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        for statement in node.body if isinstance(node, with_body) else ():
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                yield statement.lineno, statement.value.value


def _docstring_paragraphs(docstring: str, first_line: int) -> Iterator[_Paragraph]:
    lines = docstring.expandtabs().splitlines()
    indents = [len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()]
    margin = min(indents, default=0)
    section, texts, start, is_entry = "", list[str](), first_line, False
    for number, raw in enumerate([*lines, ""], start=first_line):
        line = raw.strip() if number == first_line else raw[margin:].rstrip()
        content = line.strip()
        indent = len(line) - len(content)
        header = _SECTION.match(line)
        begins = indent == 4 and section in _DESCRIBED and bool(_ENTRY.match(content))
        is_start = section in ("Returns", "Yields") and not texts
        # A row of a table is read cell by cell, not as a sentence.
        is_code = not section and (indent >= 4 or content.startswith("|"))
        is_new = header or begins or is_code or bool(_LIST_ITEM.match(line))
        if texts and (not content or is_new):
            yield _Paragraph(start, " ".join(texts), is_entry)
            texts = []
        if header:
            section = header[1]
        elif indent == 0 and content and section:
            section = ""
        if not content or header or is_code or section in ("References", "Example", "Examples"):
            continue
        if not texts:
            start, is_entry = number, begins or is_start
        texts.append(_ENTRY.sub("", content, count=1) if begins else content)


def _markdown_paragraphs(text: str) -> Iterator[_Paragraph]:
    texts, start, is_code = list[str](), 1, False
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        content = line.strip()
        is_fence = content.startswith("```")
        is_row = content.startswith("|") and not is_code
        ends = not content or is_fence or is_row or content.startswith(("#", "<"))
        if texts and (ends or _LIST_ITEM.match(line)):
            yield _Paragraph(start, " ".join(texts))
            texts = []
        is_code ^= is_fence
        if is_row:
            yield _Paragraph(number, content)
        elif not ends and not is_code:
            start = start if texts else number
            texts.append(_LIST_ITEM.sub("", line).strip() if not texts else content)


def _problems_of(paragraph: _Paragraph) -> Iterator[Problem]:
    first = re.match(r"\w+", paragraph.text)
    if paragraph.is_entry and first and first[0] in FIRST_WORDS_OF_ENTRIES:
        yield Problem(
            paragraph.line, f"an entry begins with {first[0]!r}: {_start(paragraph.text)}"
        )
    for sentence in _SENTENCE_END.split(_plain(paragraph.text)):
        if (count := _num_words(sentence)) > MAX_WORDS:
            yield Problem(paragraph.line, f"a sentence has {count} words: {_start(sentence)}")


def _plain(text: str) -> str:
    """Return a text with each link as its words and each piece of code as one word."""
    return _CODE.sub("`x`", _LINK.sub(r"\1", text))


def _num_words(text: str) -> int:
    return sum(bool(re.search(r"[^\W_]", word)) for word in _plain(text).split())


def _start(text: str) -> str:
    words = text.split()
    return " ".join(words[:8]) + " ..." * (len(words) > 8)


if __name__ == "__main__":
    problems = problems_of(Path(__file__).resolve().parent.parent, sys.argv[1:])
    sys.stdout.write("".join(f"{line}\n" for line in problems))
    sys.exit(bool(problems))
