"""Pages about runs and partitions: one file each that runs nothing and fetches nothing."""

from __future__ import annotations

import json
import re
import shlex
from xml.etree import ElementTree

import numpy as np
import pytest
from ring import ring_arrays

import distgnn as dg
from distgnn.cli import build_parser
from distgnn.cli.train_verb import config_from
from distgnn.pages.charts import legend_names, lines
from distgnn.pages.figures import command_of
from distgnn.pages.partition import partition_page
from distgnn.pages.run import run_page
from distgnn.pages.runs import ShownRun, _costs
from distgnn.training.config.settings import TrainConfig
from distgnn.training.run.directory import METRICS, SUMMARY

EVIL = "<script>alert(1)</script>"


def parsed(text):
    """The parsed page; it is well-formed, runs nothing and fetches nothing."""
    assert text.startswith("<!DOCTYPE html>\n<html lang=")
    root = ElementTree.fromstring(text.partition("\n")[2])
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert not names & {"script", "img", "link", "iframe", "object", "a"}
    assert not re.search(r"\b(src|href|srcset)=|url\(|@import|\bon\w+=", text)
    assert set(re.findall(r"https?://[^\"' ]*", text)) <= {"http://www.w3.org/2000/svg"}
    return root


def words(root):
    return " ".join("".join(root.itertext()).split())


def page_of(distgnn, here, *command):
    outcome = distgnn("report", *command, "--out", "page.html")
    assert outcome.status == 0, outcome.err
    return parsed((here / "page.html").read_text(encoding="utf-8"))


def test_a_partition_has_its_traffic_its_ranks_and_the_forecast(distgnn, here, ring_parts):
    root = page_of(distgnn, here, ring_parts)
    shown = words(root)
    found = distgnn("inspect", ring_parts, "--json").json
    assert f"replication factor{found['replication_factor']:.3f}" in shown
    for title in ("Bytes per epoch from rank to rank", "Edges", "Roots", "Leaves"):
        assert title in shown
    assert "static input: the first layer aggregates it once" in shown
    assert f"sent per epoch by all ranks{found['halo_bytes_per_epoch']} B" in shown
    maps = [e for e in root.iter() if e.tag.endswith("svg")]
    assert len(maps) == 1 + 6
    assert words(page_of(distgnn, here, ring_parts, "--model", "gat")) != shown


def test_a_drawing_of_many_ranks_has_cells_of_several(distgnn, ring_parts):
    values = distgnn("inspect", ring_parts, "--json").json
    count = 129
    between = np.ones((count, count)) - np.eye(count)
    between[3, 0] = 100
    values["halo_bytes_between"] = between.tolist()
    root = parsed(partition_page(values))
    assert "A cell is the sum of 2 by 2 ranks." in words(root)
    titles = [e.text for e in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len([title for title in titles if re.match(r"[\d-]+ to \d", title)]) == 65**2 - 1
    assert "2-3 to 0-1: 103 B" in titles
    assert "126-127 to 128: 2 B" in titles
    assert len(partition_page(values)) < 1_200_000


def test_a_page_of_a_partition_begins_with_its_figures(distgnn, here, ring_parts):
    text = page_of_text(distgnn, here, ring_parts)
    names = [words(e) for e in parsed(text).iter("dt")]
    assert names == [
        "vertices",
        "edges",
        "replication factor",
        "halo rows",
        "edge balance",
        "sent",
    ]
    assert text.index("<dl") < text.index("<h2")


def test_a_run_has_its_curves_its_summary_and_its_configuration(distgnn, here, ring_run):
    root = page_of(distgnn, here, ring_run)
    shown = words(root)
    for title in ("Loss before the step", "Metric when it was evaluated", "Where an epoch's time"):
        assert title in shown
    assert "best epoch" in shown
    assert "hidden4" in shown
    assert "Nothing was sent." in shown


def test_a_run_shows_what_was_predicted_while_its_partition_is_there(distgnn, here, ring):
    assert distgnn("partition", ring, "--parts", 1, "--out", "p").status == 0
    assert distgnn("train", "p", "--run", "r", "--epochs", 2, "--quiet").status == 0
    sentence = "Rows sent per epoch: 0 B predicted from the partition, 0 B counted on average."
    assert sentence in words(page_of(distgnn, here, "r"))
    assert distgnn("partition", ring, "--parts", 2, "--out", "p", "--overwrite").status == 0
    assert "predicted" not in words(page_of(distgnn, here, "r"))
    (here / "p/manifest.json").write_text("{}")
    assert "predicted" not in words(page_of(distgnn, here, "r"))


def test_a_run_that_has_not_ended_or_not_begun_an_epoch_has_a_page(distgnn, here, ring):
    assert distgnn("train", ring, "--run", "r", "--epochs", 2, "--quiet").status == 0
    (here / "r" / SUMMARY).unlink()
    assert "has not ended" in words(page_of(distgnn, here, "r"))
    (here / "r" / METRICS).write_text('{"epoch": 0, "loss": "x"}\n{"epoch": 1}\nnonsense\n')
    page_of(distgnn, here, "r")
    (here / "r" / METRICS).unlink()
    assert "epochs so far0" in words(page_of(distgnn, here, "r"))


def test_names_that_look_like_markup_are_only_text(distgnn, here):
    names = np.array([f"{EVIL}{number}" for number in range(3)])
    np.savez(here / "g.npz", **ring_arrays(class_names=names))
    assert distgnn("partition", "g.npz", "--parts", 2, "--out", "p").status == 0
    manifest = json.loads((here / "p/manifest.json").read_text())
    manifest["name"] = manifest["options"]["x"] = manifest["source"] = EVIL
    (here / "p/manifest.json").write_text(json.dumps(manifest))
    assert EVIL in words(page_of(distgnn, here, "p"))
    assert distgnn("train", "g.npz", "--run", "r", "--epochs", 1, "--quiet").status == 0
    config = json.loads((here / "r/config.json").read_text())
    config["task"]["name"] = config["source"]["source"] = config["train"]["optimizer"] = EVIL
    config["train"][EVIL] = EVIL
    (here / "r/config.json").write_text(json.dumps(config))
    summary = json.loads((here / "r" / SUMMARY).read_text())
    (here / "r" / SUMMARY).write_text(json.dumps({**summary, EVIL: EVIL}))
    assert words(page_of(distgnn, here, "r")).count(EVIL) >= 5


def records(count):
    return [
        {
            "epoch": epoch,
            "loss": 1 / (1 + epoch),
            "epoch_s": 0.01,
            "eval_s": 0.002 * (epoch % 5 == 0),
            "aggregate_s": 0.004,
            "update_s": 0.003,
            "pack_s": 0.001,
            "exchange_wait_s": 0.002,
            "weight_sync_s": 0.0,
            "halo_bytes_sent": 1000,
            "eval_halo_bytes_sent": 500,
            "weight_bytes_sent": 100,
            "max_staleness": min(epoch, 3),
            "train_metric": 0.5 if epoch % 5 == 0 else None,
            "val_metric": None,
            "test_metric": None,
        }
        for epoch in range(count)
    ]


def test_a_long_run_with_stale_rows_stays_a_small_page():
    text = run_page({"task": {"name": "g"}, "train": {"model": {}}}, records(5000), None)
    shown = words(parsed(text))
    assert "Age of the oldest row that was used" in shown
    assert "Rows sent by all ranks" in shown
    assert "aggregate 40 %, update 30 %, pack 10 %, wait for rows 20 %" in shown
    assert "val" not in [e.text for e in parsed(text).iter() if e.tag.endswith("}text")]
    assert len(text) < 200_000


@pytest.mark.parametrize(("error", "is_drawn"), [(0.0, False), (0.01, True)])
def test_the_page_of_a_run_draws_the_error_of_its_codes(error, is_drawn):
    rows = [{**record, "codec_error": error} for record in records(3)]
    text = words(parsed(run_page({"task": {"name": "g"}, "train": {"model": {}}}, rows, None)))
    assert ("Error of the codes of rows" in text) == is_drawn


@pytest.mark.parametrize("config", [{}, {"train": None}, {"task": 3, "source": []}])
def test_a_configuration_without_what_is_usual_has_a_page(config):
    assert "a model on a graph" in words(
        parsed(run_page(config, records(1), {"x": [1], "y": None}))
    )


def test_a_page_of_a_run_begins_with_its_figures_and_has_the_command(distgnn, here, ring_run):
    text = page_of_text(distgnn, here, ring_run)
    summary = json.loads((ring_run / SUMMARY).read_text())
    root = parsed(text)
    names = [words(e) for e in root.iter("dt")]
    assert names == ["test accuracy", "epochs", "time", "sent", "peak memory", "ranks"]
    values = [e.text for e in root.iter("dd")]
    assert values[0] == f"{summary['test_metric']:.4f}"
    assert values[1] == str(summary["num_epochs"])
    assert values[3] == "0 B"
    assert text.index("<dl") < text.index("<h2")
    assert "@media print" in text
    assert "prefers-color-scheme: dark" in text


def page_of_text(distgnn, here, *command):
    assert distgnn("report", *command, "--out", "page.html").status == 0
    return (here / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--model gat --heads 2 --last-heads 1 --hidden 3 --lr 0.02 --activation elu",
        "--model sgc --hops 3 --norm batch --layers 2 --no-residual",
        "--algorithm cd-3 --smoothing 0.25",
        "--algorithm cd-3 --bins 2 --delay-cache off --ema 0.5",
        "--preset pipegcn --optimizer kfac --kfac damping=0.1",
        "--halo fwd:int8+bwd:int4 --weights int8 --residual --static-input off",
        "--lr-schedule cosine --evaluation screened --goal 0.5 --input-dropout 0.25",
    ],
)
def test_the_command_of_a_page_gives_the_same_settings(flags):
    given = config_from(build_parser().parse_args(["train", "g", "--run", "r", *flags.split()]))
    config = {"train": given.to_json(), "source": {"source": "a b.npz", "split": None}}
    command = command_of({**config, "num_ranks": 3})
    assert command.startswith("mpirun -n 3 distgnn train 'a b.npz' --run RUN")
    again = build_parser().parse_args(shlex.split(command)[4:])
    assert config_from(again) == given
    assert command.count("--") <= 1 + flags.count("--")


def test_the_command_of_a_page_says_how_the_source_is_read():
    source = {
        "source": "e.csv",
        "vertices": "v.csv",
        "undirected": True,
        "split": [0.5, 0.25, 0.25],
    }
    config = {"train": TrainConfig().to_json(), "source": source, "num_ranks": 1}
    wanted = "distgnn train e.csv --run RUN --undirected --vertices v.csv --split 0.5/0.25/0.25"
    assert command_of(config) == wanted
    assert command_of({**config, "train": {}}) == ""
    assert command_of({**config, "source": None}) == ""


def test_the_command_of_a_page_names_the_cuts_between_which_a_run_turned():
    train = TrainConfig.of({"preset": "grappa", "cut_every": 3}).to_json()
    config = {"train": train, "source": {"source": "a"}, "num_ranks": 1, "cuts": ["1", "2", "3"]}
    wanted = "distgnn train a --run RUN --cuts 'b,c d' --cut-every 3 --preset grappa"
    assert command_of({**config, "other_cuts": ["b", "c d"]}) == wanted
    assert command_of({**config, "other_cuts": ["b,c", "d"]}) == ""
    assert command_of(config) == ""


def test_runs_side_by_side_have_their_figures_and_the_settings_that_differ(distgnn, here, ring):
    for name, hidden in (("a", 4), ("b", 8)):
        words_ = ["train", ring, "--run", f"{name}/run", "--hidden", hidden, "--epochs", 3]
        assert distgnn(*words_, "--quiet").status == 0
    root = page_of(distgnn, here, "a/run", "b/run")
    shown = words(root)
    assert "2 runs: a/run, b/run" in shown
    assert "hidden48" in shown
    assert "dropout0" not in shown
    for title in ("Validation metric", "Loss before the step", "Median time of an epoch"):
        assert title in shown
    assert "distgnn train" in shown
    curves = [e for e in root.iter() if e.tag.endswith("polyline")]
    assert len(curves) == 4 * 2
    assert len({e.get("style") for e in curves}) == 2


def test_runs_that_have_not_begun_stand_beside_others(distgnn, here, ring_run):
    (here / "new").mkdir()
    (here / "new/config.json").write_text((ring_run / "config.json").read_text())
    shown = words(page_of(distgnn, here, ring_run, "new"))
    assert "None: all runs have the same settings." in shown
    assert "new-0" in shown


def test_ten_curves_can_be_told_apart():
    named = legend_names(str(number) for number in range(25))
    assert len({re.search(r'style="([^"]*)"', name)[1] for name in named}) == 25


def test_a_pointer_reads_values_off_a_curve():
    curves = {"a": [(0.0, 1.0), (1.0, 2.0), (2.0, 4.0)], "b": [(1.0, 7.0)]}
    drawn = lines(curves, labels=("epoch", "x"), description="d", write=str)
    titles = [e.text for e in ElementTree.fromstring(drawn).iter() if e.tag.endswith("title")]
    assert titles[1:] == ["epoch 0: a 1.0", "epoch 1: a 2.0, b 7.0", "epoch 2: a 4.0, b 7.0"]
    bands = [e for e in ElementTree.fromstring(drawn).iter() if e.get("class") == "band"]
    assert float(bands[0].get("x")) + float(bands[0].get("width")) == float(bands[1].get("x"))


def test_json_says_what_was_written(distgnn, here, ring_parts):
    found = distgnn("report", ring_parts, "--out", "p.html", "--json").json
    size = (here / "p.html").stat().st_size
    assert found == {"out": "p.html", "kind": "partition", "bytes": size}
    assert distgnn("report", ring_parts, "--out", "p.html").out.startswith("wrote p.html: a page")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["nosuch", "--out", "p.html"], "'nosuch' is neither a partition directory nor that of a"),
        (["RUN", "--out", "p.pdf"], "--out must end in .html or .htm, got 'p.pdf'"),
        (["RUN", "--out", "no/p.html"], "cannot write 'no/p.html': No such file or directory"),
        (["RUN", "--out", "p.html", "--hidden", 8], "flags of the model have no effect on a run"),
        (["RUN", "RUN", "--out", "p.html"], "run 'RUN' is given twice; leave one of them out"),
        (["RUN", "nosuch", "--out", "p.html"], "'nosuch' is no directory of a run, but of several"),
    ],
)
def test_a_page_that_cannot_be_written_is_one_sentence(command, sentence, distgnn, ring_run):
    command = [ring_run if word == "RUN" else word for word in command]
    sentence = sentence.replace("'RUN'", f"'{ring_run}'")
    assert distgnn("report", *command).sentence.startswith(sentence)


def test_a_graph_in_memory_has_no_command(tmp_path):
    run = dg.train(dg.load("cora"), out=tmp_path / "run", epochs=3, hidden=4, quiet=True)
    dg.report(run, tmp_path / "p.html")
    assert "distgnn train" not in (tmp_path / "p.html").read_text()


def test_a_run_that_has_not_ended_has_no_bar_of_costs():
    ended = {"median_epoch_s": 0.5, "halo_bytes_per_epoch": 0}
    runs = [ShownRun("a", {}, [], ended), ShownRun("b", {}, [], None)]
    page = "".join(map(str, _costs(runs)))
    assert "a 500 ms" in page or "a 0.5 s" in page
    assert "b 0" not in page
    assert ">-<" in page
