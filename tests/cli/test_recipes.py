"""Recipes: every one that comes along can be trained with, the command line wins, mistakes."""

from __future__ import annotations

import argparse
import json
import runpy
import sys

import pytest

from distgnn.api import recipes
from distgnn.cli import build_parser
from distgnn.cli.recipes import expanded, recipe_words
from distgnn.cli.train_verb import add_recipe_argument, config_from
from distgnn.datasets.errors import InputError


def parsed(*words):
    return build_parser().parse_args(expanded([str(word) for word in words]))


@pytest.fixture
def write(here):
    def write_recipe(**values):
        (here / "mine.json").write_text(json.dumps(values))
        return "mine.json"

    return write_recipe


@pytest.mark.parametrize("name", recipes.names())
def test_each_recipe_is_a_configuration(name):
    recipe = recipes.read(name)
    assert recipe.about
    assert recipe.data
    assert recipe.published["mean"] > 0
    words = ("train", "cora", "--run", "r", "--recipe", name)
    found = config_from(parsed(*words)).to_json()
    flat = {**found, **found["model"]}
    for key, value in recipe.flags.items():
        assert flat[key.replace("-", "_")] == value
    # What it says of how the graph is loaded it does, too.
    named = [word for word in recipes._SWITCHES if f"--{word}" in recipe.about]
    assert all(recipe.source.get(word) for word in named)
    repeated = build_parser().parse_args([*words, *recipe_words(recipe, with_runs=True)])
    assert repeated.seeds is not None or repeated.split_index == "all"


def test_kipfs_recipe_reaches_what_it_should(distgnn):
    command = ("train", "cora", "--run", "r", "--recipe", "cora-gcn", "--quiet", "--json")
    outcome = distgnn(*command, "--epochs", 30)
    assert outcome.status == 0, outcome.err
    assert outcome.json["test_metric"] > 0.7


def test_a_flag_of_the_command_line_wins_wherever_it_stands():
    for words in (
        ("--hidden", 8, "--recipe", "cora-gcn"),
        ("--recipe=cora-gcn", "--hidden", 8),
    ):
        config = config_from(parsed("train", "cora", "--run", "r", *words))
        assert (config.model.hidden, config.model.model, config.decay_of) == (8, "gcn", "first")


def test_other_verbs_and_words_stay_as_they_are():
    words = ["evaluate", "--recipe", "cora-gcn"]
    assert expanded(words) == words
    assert expanded([]) == []


def test_a_recipe_of_ones_own_sets_switches_too(write):
    name = write(flags={"model": "gcn", "residual": True, "recompute": False, "lr": 0.5})
    config = config_from(parsed("train", "cora", "--run", "r", "--recipe", name))
    assert (config.model.residual, config.recompute, config.lr) == (True, False, 0.5)


def test_a_second_recipe_is_refused(distgnn):
    words = ("--recipe", "cora-gcn", "--recipe=cora-sage")
    assert distgnn("train", "cora", "--run", "r", *words).sentence.startswith(
        "--recipe was given 2 times, cora-gcn and cora-sage; give it once"
    )


def test_a_switch_of_a_recipe_is_unset_as_help_says(write):
    name = write(flags={"residual": True})
    words = ("train", "cora", "--run", "r", "--recipe", name)
    assert config_from(parsed(*words)).model.residual
    assert not config_from(parsed(*words, "--no-residual")).model.residual
    parser = argparse.ArgumentParser()
    add_recipe_argument(parser)
    shown = " ".join(parser.format_help().split())
    assert "those of the command line win (--no-residual unsets a switch)" in shown


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"flags": {"depth": 3}}, "recipe 'mine' has the key 'depth', which is no flag of a model"),
        ({"flags": {"run": "x"}}, "recipe 'mine' has the key 'run', which is no flag of a model"),
        ({"flags": {"seeds": 3}}, "recipe 'mine' has the key 'seeds', which is no flag of a model"),
        ({"flags": {"lr": True}}, "recipe 'mine' has lr = true, but it takes a number or a text"),
        ({"flags": {"no-residual": True}}, "recipe 'mine' has the key 'no-residual', which is no"),
        ({"flags": {"residual": 1}}, "recipe 'mine' has residual = 1, but it takes true or false"),
        ({"lr": 1, "flags": {}}, "recipe 'mine.json' has the key 'lr', but it may have about, dat"),
        ({"about": "x"}, "recipe 'mine.json' is no object with flags; write"),
        (
            {"flags": {}, "data": 5},
            "recipe 'mine.json' has data = 5, but it takes names of graphs; w",
        ),
        (
            {"flags": {}, "data": "cora"},
            "recipe 'mine.json' has data = \"cora\", but it takes names",
        ),
        (
            {"flags": {}, "data": [1]},
            "recipe 'mine.json' has data = [1], but it takes names of grap",
        ),
        (
            {"flags": {}, "published": {"mean": "81"}},
            "recipe 'mine.json' has published mean = \"81\", but it takes a number; write it in pe",
        ),
        (
            {"flags": {}, "runs": 3},
            "recipe 'mine.json' has published, runs or source that are no o",
        ),
        (
            {"flags": {}, "source": {"split": "1/1/1"}},
            "recipe 'mine' has source split, but it may have deduplicate, drop-self-loops",
        ),
    ],
)
def test_a_recipe_that_cannot_be_used_is_refused_in_a_sentence(write, distgnn, values, expected):
    outcome = distgnn("train", "cora", "--run", "r", "--recipe", write(**values))
    assert outcome.sentence.startswith(expected)


def test_a_recipe_that_is_not_there_is_refused(here):
    with pytest.raises(InputError, match=r"^there is no recipe 'kipf'; use one of aifb"):
        recipes.read("kipf")
    with pytest.raises(InputError, match=r"^cannot read recipe 'kipf.json': No such file"):
        recipes.read("kipf.json")
    (here / "bad.json").write_text("{")
    with pytest.raises(InputError, match=r"^recipe 'bad.json' is not JSON"):
        recipes.read("bad.json")


def test_a_recipe_without_figures_to_compare_is_reported_as_failed(
    here, repository, monkeypatch, capsys
):
    """By the table of published figures."""
    published, plain = {"published": {"mean": 81.5}}, "it has no runs or no published mean"
    recipes_and_reasons = (
        ({"runs": {"seeds": 2}}, plain),
        (published, plain),
        (
            {**published, "runs": {"split-index": 0}},
            "its runs are no series with a test metric",
        ),
    )
    script = runpy.run_path(str(repository / "examples/accuracy/run.py"))
    flags = {"model": "gcn", "hidden": 4, "epochs": 1}
    for number, (values, why) in enumerate(recipes_and_reasons):
        (here / f"{number}.json").write_text(
            json.dumps({"data": ["cora"], "flags": flags, **values})
        )
        words = ["run.py", f"{number}.json", "--out", "out"]
        monkeypatch.setattr(sys, "argv", words)
        assert script["main"]() == 1
        assert f"{number}: failed, {why}\n" in capsys.readouterr().err


def test_the_page_of_published_figures_keeps_the_rows_of_recipes_that_are_not_run(here, repository):
    script = runpy.run_path(str(repository / "examples/accuracy/run.py"))
    page = here / "page.md"
    page.write_text(script["RESULTS"].read_text())
    script["write"].__globals__["RESULTS"] = page
    script["write"]([["other", *"abcde", "", ""]])
    before, after = (set(file.read_text().splitlines()) for file in (script["RESULTS"], page))
    assert before <= after
    assert sum(line.startswith("| other |") for line in after) == 1


def test_the_page_marks_figures_without_a_publication(load_script):
    script = load_script("examples/accuracy/run.py")
    rows = script.recorded()
    marked = {name for name, row in rows.items() if row[script.PUBLISHED].endswith(" *")}
    assert marked == {name for name in rows if recipes.read(name).about.startswith(script.OTHERS)}
    assert marked
    assert f"\n{script.NOTE}\n" in script.RESULTS.read_text()
    found = {"test_metric_mean": 0.9, "test_metric_std": None, "num_runs": 2}
    for name, row in rows.items():
        again = script.row_of(recipes.read(name), "x.npz", found, None, 0)
        assert again[script.PUBLISHED] == row[script.PUBLISHED]


def test_runs_of_another_device_have_a_folder_of_their_own(here, load_script, monkeypatch):
    script = load_script("examples/accuracy/run.py")
    runs = []

    def train(words):
        runs.append(words[words.index("--run") + 1])
        return 2

    monkeypatch.setattr(script, "distgnn", train)
    for device in ("cpu", "cuda"):
        words = ["run.py", "cora-gcn", "--out", "out", f"--device={device}"]
        monkeypatch.setattr(sys, "argv", words)
        assert script.main() == 1
    assert runs == ["out/cora-gcn", "out/cora-gcn-cuda"]
    asked = argparse.Namespace(out=here, device="cuda")
    assert script.run_of("cora-gcn-ranks-4", asked) == here / "cora-gcn-ranks-4-cuda"


@pytest.mark.parametrize(
    ("flags", "words", "sentence"),
    [
        ({"preset": "grappa"}, ("--algorithm", "cd-0"), "--algorithm 0c, got --algorithm cd-0"),
        ({"algorithm": "cd-0"}, ("--preset", "grappa"), "--algorithm 0c, got --algorithm cd-0"),
        (
            {"preset": "cofree"},
            ("--no-reweight-loss",),
            "--reweight-loss, got --no-reweight-loss",
        ),
        (
            {"reweight-loss": False},
            ("--preset", "cofree"),
            "--reweight-loss, got --no-reweight-loss",
        ),
        ({"preset": "bsp"}, ("--algorithm", "0c"), "--algorithm cd-0, got --algorithm 0c"),
    ],
)
def test_a_recipe_and_a_flag_that_its_preset_contradicts_are_refused(
    distgnn, ring, write, flags, words, sentence
):
    recipe = write(flags=flags)
    refused = distgnn("train", ring, "--run", "r", "--recipe", recipe, *words)
    assert refused.status == 2
    assert refused.sentence.endswith(f" says {sentence}; drop one of the two")


def test_a_word_that_is_too_long_for_a_file_is_no_directory():
    words = ["train", "cora", "--recipe=cora-gcn", "--run", "r", f"--weights={'x' * 300}"]
    assert expanded(words)[-len(words) + 1 :] == words[1:]
