"""The documentation: its reference is that of the program, and its links lead somewhere.

Sphinx is not needed here. `make docs` builds the pages and runs every cell.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

import pytest

import distgnn
from distgnn import nn, optim
from distgnn.cli import VERBS, build_parser
from distgnn.nn.config import KINDS
from distgnn.settings.fields import settings_of
from distgnn.settings.model import ModelSettings
from distgnn.training.config.run import RunSettings

_FENCE = re.compile(r"^(`{3,}|:{3,})(.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def stage(load_script):
    return load_script("docs/stage.py")


@pytest.fixture(scope="module")
def staged(repository, tmp_path_factory):
    """Folder of all pages."""
    folder = tmp_path_factory.mktemp("docs") / "source"
    script = repository / "docs/stage.py"
    done = subprocess.run(
        [sys.executable, script, folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_the_reference_has_every_option_of_every_verb(stage):
    pages = stage.verb_pages()
    (verbs,) = (
        action.choices
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    assert [f"reference/{verb}" for verb in VERBS] == list(pages)
    for name, verb in verbs.items():
        page = pages[f"reference/{name}"]
        shown = set(re.findall(r"^`(.+)`$", page, re.MULTILINE))
        words = {word for line in shown for word in re.findall(r"--?[a-z][\w-]*", line)}
        options = {word for action in verb._actions for word in action.option_strings}
        assert options <= words
        assert {word for word in words if word.startswith("--")} <= options, "no flag of the past"


def test_the_reference_has_every_field_with_its_help(stage):
    page = stage.verb_pages()["reference/train"]
    for owner in (ModelSettings, RunSettings):
        for setting in settings_of(owner):
            if setting.about is not None:
                assert f"`{setting.flag}" in page
    assert "full-batch steps (default: 200)" in page


def test_the_reference_has_every_public_name(stage):
    (page,) = stage.api_pages().values()
    names = [name for name in distgnn.__all__ if name not in ("nn", "optim")]
    names += [f"nn.{name}" for name in nn.__all__] + [f"optim.{name}" for name in optim.__all__]
    assert [name for name in names if f"   distgnn.{name}\n" not in page] == []


def test_the_cheat_sheet_has_every_model(stage):
    sheet = stage.cheat_sheet()
    rows = {
        line.split("|")[1].strip(" `"): line for line in sheet.splitlines() if line[:3] == "| `"
    }
    rows.pop("--model")
    assert list(rows) == list(KINDS)
    assert rows["gat"].split("|")[3:7] == [
        " `--attention-dropout`, `--edge-features`, `--heads`, `--last-heads` ",
        *(" - ", " yes ", " - "),
    ]
    assert all("20" in rows[name].split("|")[-2] for name in KINDS), "the year of a paper"


def test_links_and_pictures_of_the_pages_lead_somewhere(staged):
    pages = list(staged.rglob("*.md"))
    assert len(pages) > 40
    broken = [
        f"{page.relative_to(staged)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
        if not (page.parent / target).exists()
    ]
    assert not broken


def test_every_page_is_in_a_table_of_contents(staged):
    listed = set()
    for page in staged.rglob("*.md"):
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            entries = [line for line in tree.splitlines() if line and not line.startswith(":")]
            names = [re.sub(r".*<(.*)>", r"\1", entry) for entry in entries]
            listed |= {str((page.parent / name).relative_to(staged)) for name in names}
    pages = {str(page.relative_to(staged).with_suffix("")) for page in staged.rglob("*.md")}
    assert pages - listed == {"index"}
    assert listed - pages == set()


def test_every_block_of_code_runs_or_is_text(repository):
    others = []
    for page in (repository / "docs").rglob("*.md"):
        fences = _FENCE.findall(page.read_text("utf-8"))
        kinds = [words.strip() for _, words in fences[::2]]
        allowed = ("{code-cell}", "{toctree}", "text")
        others += [f"{page.name}: {kind}" for kind in kinds if not kind.startswith(allowed)]
        assert len(fences) % 2 == 0
    assert not others


def test_a_link_that_leads_nowhere_is_an_error(stage, repository):
    path = repository / "docs/data.md"
    with pytest.raises(ValueError, match=r"data\.md: a link leads to no\.md, which is not there"):
        stage.rewritten("[x](no.md)", path, "data")
    kept = "[a](methods.md#codes-of-rows) and [b](reference/train.md) and [c](a:b)"
    assert stage.rewritten(kept, path, "data") == kept
    text = "[kfac](../examples/strategies/kfac.md), [the script](../examples/quick.py)"
    wanted = "[kfac](systems/kfac.md), the script (`examples/quick.py`)"
    assert stage.rewritten(text, path, "data") == wanted


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.timeout(900)
def test_the_documentation_builds_without_a_warning(staged, repository, tmp_path):
    pytest.importorskip("myst_nb")
    pytest.importorskip("furo")
    words = ["-m", "sphinx", "-W", "--keep-going", "-q", "-c", repository / "docs"]
    done = subprocess.run(
        [sys.executable, *words, staged, tmp_path / "html"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Net on cora" in (tmp_path / "html/index.html").read_text("utf-8")


def test_the_page_of_a_run_has_every_field_of_a_run(repository, tmp_path):
    run = distgnn.train("cora", epochs=1, hidden=4, goal=0.9, out=tmp_path / "run", quiet=True)
    found = set(re.findall(r"`([a-z_]+)`", (repository / "docs/run.md").read_text("utf-8")))
    assert set(run.summary) - found == set()
    assert set(run.metrics[0]) - found == set()
