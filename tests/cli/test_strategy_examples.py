"""The tables about what rows are sent as: they are made, go on where they were, and add up."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.mpi


def run(script, *words, cwd, status=0):
    done = subprocess.run(
        [sys.executable, str(script), *map(str, words)],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def rows_of(text):
    """Read the last table."""
    last = text[text.rindex("| --- |\n") :]
    lines = [line for line in last.splitlines()[1:] if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_of_accuracy_goes_on_where_it_was(repository, tmp_path):
    script = repository / "examples/strategies/accuracy.py"
    words = ["out", "--sets", "cora", "--models", "gcn", "--parts", 2, "--cuts", "random"]
    words += ["--halos", "exact,int8,grappa", "--epochs", 3, "--eval-every", 1]
    first = run(script, *words, "--seeds", 1, cwd=tmp_path)
    runs = lines_of(tmp_path / "out/accuracy.jsonl")
    assert [one["halo"] for one in runs] == ["exact", "int8", "grappa"]
    exact, coded, alone = runs
    assert all(one["commit"] for one in runs)
    points = 100 * (coded["test_metric"] - exact["test_metric"])
    assert (
        f"- int8: {int(points < -0.2)} of 1 (0), {points:+.2f} points" in first.stdout.splitlines()
    )
    assert alone["halo_bytes_per_epoch"] == 0
    assert exact["codec_error"] == 0 < exact["halo_bytes_per_epoch"]
    assert 0 < coded["codec_error"] < 0.05
    assert coded["halo_bytes_per_epoch"] < exact["halo_bytes_per_epoch"]
    row = rows_of(first.stdout)[0]
    points = 100 * exact["test_metric"]
    assert row[:7] == ["cora", "gcn", "2", "random", "3", "1", f"{points:.2f}"]
    assert float(row[7]) == pytest.approx(100 * coded["test_metric"] - points, abs=0.006)
    # The last line was cut off by a kill: it is made again, and the first is not.
    file = tmp_path / "out/accuracy.jsonl"
    file.write_text(file.read_text()[:-20])
    again = run(script, *words, "--seeds", 1, cwd=tmp_path)
    assert rows_of(again.stdout) == rows_of(first.stdout)
    assert "exact" not in again.stderr


@pytest.mark.parametrize(
    "path", ["strategies/accuracy.py", "lab/strategies.py", "lab/over_links.py"]
)
def test_a_comma_inside_parentheses_is_part_of_a_halo(
    path, repository, load_script, monkeypatch, tmp_path
):
    monkeypatch.syspath_prepend(str(repository / "examples/lab"))
    monkeypatch.syspath_prepend(str(repository / "examples/strategies"))
    script = load_script(f"examples/{path}")
    asked = []

    def stop(file):
        asked.append(file)
        raise SystemExit

    monkeypatch.setattr(script, "read_lines", stop)
    parse = argparse.ArgumentParser.parse_args

    def keep(parser):
        words = ["out", "--only-table", "--halos", "int8, bins(4,deal=peers),exact"]
        asked.append(parse(parser, words))
        return asked[-1]

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", keep)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        script.main()
    assert asked[0].halos == ["int8", "bins(4,deal=peers)", "exact"]


def test_a_halo_that_is_none_ends_the_table_of_accuracy(repository, tmp_path):
    script = repository / "examples/strategies/accuracy.py"
    words = ["out", "--sets", "cora", "--models", "gcn", "--parts", "2", "--cuts", "random"]
    words += ["--halos", "exat", "--epochs", "1"]
    done = run(script, *words, cwd=tmp_path, status=1)
    assert done.stderr.splitlines()[-1].startswith("exat with gcn: ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out/accuracy.jsonl").exists(), "no result"


def test_a_preset_that_one_model_refuses_is_run_with_the_other(repository, tmp_path):
    script = repository / "examples/strategies/accuracy.py"
    words = ["out", "--sets", "cora", "--models", "gat,gcn", "--parts", "2", "--cuts", "random"]
    run(script, *words, "--halos", "pipegcn", "--epochs", 2, "--seeds", 1, cwd=tmp_path)
    refused, made = lines_of(tmp_path / "out/accuracy.jsonl")
    assert (refused["model"], made["model"]) == ("gat", "gcn")
    assert "adds up the values of a row" in refused["failed"]
    assert "test_metric" in made


def epochs_with_waits(*waits):
    sent = {f"{name}_bytes_sent": 1 for name in ("halo", "weight", "eval_halo")}
    seconds = {"eval_s": 0.0, "val_metric": 0.5}
    return [{**sent, **seconds, "epoch_s": 2 * wait, "exchange_wait_s": wait} for wait in waits]


class NoHosts:
    def run(self, words, out):
        run = out.parent / ("lab-run" if out.name == "lab-out" else "run")
        run.mkdir(parents=True)
        figures = {"epochs_to_goal": None, "val_metric": 0.5, "test_metric": 0.5, "total_s": 1.0}
        (run / "summary.json").write_text(json.dumps(figures))

    def counters(self):
        return []


def test_waits_are_those_of_the_epochs_whose_seconds_are_shown(
    repository, load_script, monkeypatch, tmp_path
):
    monkeypatch.syspath_prepend(str(repository / "examples/lab"))
    options = argparse.Namespace(folder=tmp_path, eval_every=1, live=[])
    script = load_script("examples/lab/over_links.py")
    monkeypatch.setattr(script.lab, "epochs_of", lambda run: epochs_with_waits(9.0, 1.0, 2.0))
    monkeypatch.setattr(script, "words_of", lambda cell, options: ([], 0.9))
    cell = script.Cell("1gbit", "cora", "metis", "exact", 0)
    line = script.measure(NoHosts(), cell, options)
    assert (line["epoch_s"], line["wait_s"]) == (3.0, 1.5)
    script = load_script("examples/lab/strategies.py")
    monkeypatch.setattr(script, "cut_graph", lambda *words: tmp_path)
    monkeypatch.setattr(script, "words_of", lambda *words: [])
    cell = script.Cell("1gbit", "cora", "metis", "exact", "exact", "exact")
    monkeypatch.setattr(script, "reached", lambda *words: {})
    line = script.measure(NoHosts(), cell, 0.9, 3, options)
    assert (line["median_epoch_s"], line["wait_s"]) == (4.0, 2.0)


def test_the_table_of_presets_says_what_the_goal_took(repository, tmp_path):
    script = repository / "examples/strategies/presets.py"
    words = ["out", "--sets", "cora", "--parts", 2, "--cuts", "random,metis", "--seeds", 1]
    words += ["--halos", "decentralized,int8/int4", "--beside", "random"]
    words += ["--epochs", 4, "--eval-every", 2]
    shown = run(script, *words, cwd=tmp_path).stdout
    runs = lines_of(tmp_path / "out/accuracy.jsonl")
    assert [one["halo"] for one in runs] == ["exact", "decentralized", "int8/int4"] * 2
    exact = runs[0]
    goal = max(point["val_metric"] for point in exact["curve"]) - 0.005
    best = next(point for point in exact["curve"] if point["val_metric"] >= goal)
    tables = shown.split("\n## ")
    assert [table.splitlines()[0] for table in tables[1:]] == [
        "cora, gcn, 2 parts, random",
        "cora, gcn, 2 parts, metis, beside exact training on random",
    ]
    rows = [row for table in tables[1:] for row in rows_of(table)]
    for one, row in zip(runs, rows, strict=True):
        assert [point["epochs"] for point in one["curve"]] == [2, 4]
        assert one["curve"][-1]["halo_bytes"] == 4 * one["halo_bytes_per_epoch"]
        assert one["curve"][-1]["weight_bytes"] == 4 * one["weight_bytes_per_epoch"]
        assert 0 < one["curve"][0]["cpu_s"] < one["curve"][1]["cpu_s"]
        there = [point for point in one["curve"] if point["val_metric"] >= goal]
        assert row[:2] == [f"`{one['halo']}`", "1"]
        assert row[3] == f"{len(there[:1])} of 1"
        if there:
            sent, least = (
                [point[name] for name in ("halo_bytes", "weight_bytes")]
                for point in (there[0], best)
            )
            fewer = sum(least) / sum(sent)
            figures = [f"{number / 1e6:.2f}" for number in sent]
            figures += [f"{fewer:.2f}", f"{there[0]['cpu_s']:.2f}"]
            assert row[4:] == [str(there[0]["epochs"]), *figures]
        else:
            assert row[4:] == ["-"] * 5
        points = 100 * (one["test_metric"] - exact["test_metric"])
        is_first = one is exact
        assert row[2] == (f"{100 * exact['test_metric']:.2f} %" if is_first else f"{points:+.2f}")
    weights = [one["weight_bytes_per_epoch"] for one in runs]
    assert weights[2] < 0.2 * weights[0], "coded sums"


def test_a_cut_that_is_not_run_is_no_goal(repository, tmp_path):
    script = repository / "examples/strategies/presets.py"
    words = ("out", "--cuts", "random", "--beside", "libra")
    done = run(script, *words, cwd=tmp_path, status=1)
    assert done.stderr.strip() == "--beside libra is none of --cuts random; add it"
    assert not (tmp_path / "out").exists()


def test_the_table_of_epochs_goes_on_where_it_was(repository, tmp_path):
    script = repository / "examples/strategies/second_order.py"
    graph = "synthetic:planted,num_vertices=300"
    words = ["out", "--sets", graph, "--trials", 2, "--epochs", 12, "--start", 8, "--seeds", 1]
    first = run(script, *words, cwd=tmp_path)
    file = tmp_path / "out/second_order.jsonl"
    runs = lines_of(file)
    tuning = [one["method"] for one in runs if one["seed"] == 0]
    assert tuning == ["adam", "adam", "kfac", "kfac", "mlp", "mlp"]
    (row,) = rows_of(first.stdout)
    adam = [one for one in runs if one["method"] == "adam"]
    assert all(len(one["metric"]) == 12 for one in adam)
    best = max((one for one in adam if one["seed"] == 0), key=_best)
    (same,) = (one for one in adam if one["seed"] == 1 and one["lr"] == best["lr"])
    goals = {one["seed"]: one["best"] - 0.005 for one in (best, same)}
    limits = {}
    for one in runs:
        if one["method"] == "adam":
            continue
        # It ends at the goal, or after as many epochs as an earlier trial took to get there.
        key, num_epochs = (one["method"], one["seed"]), len(one["metric"]) - one["start"]
        # A start without the graph has no metrics.
        *before, is_there = [(metric or 0) >= goals[one["seed"]] for metric in one["metric"]]
        assert not any(before)
        assert num_epochs == limits.get(key, 12) or (is_there and num_epochs < limits.get(key, 12))
        if is_there:
            limits[key] = num_epochs
    assert row[:2] == [graph, f"{100 * (same['best'] - 0.005):.2f}"]
    assert "1 of 1" in row[2]
    file.write_text(file.read_text()[:-20])
    again = run(script, *words, cwd=tmp_path)
    assert len(lines_of(file)) == len(runs)
    assert again.stderr.count("\n") == 1
    assert rows_of(again.stdout)[0][1] == row[1]


def _best(line):
    return line["best"]


@pytest.fixture
def second_order(load_script):
    return load_script("examples/strategies/second_order.py")


CURVES = {"adam": {0.01: [0.5, 0.7, 0.8, 0.8], 0.03: [0.7, 0.8, 0.9, 0.9]}}
CURVES["kfac"] = {0.1: [0.7, 0.8, 0.8, 0.9], 0.05: [0.7, 0.7, 0.9, 0.9]}


def table_of(module, monkeypatch, folder, **changes):
    """Make the row of a graph whose runs have these metrics; the row, and the runs made for it."""
    made = []

    def run(cell, graph, goal, most):
        made.append((cell.method, cell.lr, cell.seed))
        metrics = CURVES[cell.method][cell.lr]
        if cell.method == "adam" and cell.seed in changes.get("failing", ()):
            return {**cell._asdict(), "failed": "the loss is nan"}
        ends = [n for n, metric in enumerate(metrics, 1) if metric >= goal or n >= most]
        metrics = metrics[: min(ends, default=len(metrics))]
        seconds = [float(number) for number in range(1, len(metrics) + 1)]
        return {**cell._asdict(), "best": max(metrics), "metric": metrics, "spent_s": seconds}

    options = argparse.Namespace(folder=folder, data=None, trials=2, seeds=1, epochs=4, start=0)
    options.only_table, options.methods = False, ["adam", "kfac"]
    for name, value in changes.items():
        setattr(options, name, value)
    monkeypatch.setattr(module, "run", run)
    monkeypatch.setattr(module.datasets, "load", lambda name: None)
    return module.Table(options).row("cora")[0], made


def test_a_run_that_ended_at_a_lower_goal_is_made_again(second_order, tmp_path, monkeypatch):
    first, _ = table_of(second_order, monkeypatch, tmp_path, trials=1)
    assert first[1:] == ["79.50", "3 / 3.00 s (0.01; 1 of 1)", "2 / 2.00 s (0.1; 1 of 1)"]
    # A second rate of Adam raises the goal to 89.5 %, which the run of K-FAC at 0.1 ended below.
    _, made = table_of(second_order, monkeypatch, tmp_path, only_table=True)
    assert not made
    row, made = table_of(second_order, monkeypatch, tmp_path)
    assert made[0] == ("adam", 0.03, 0)
    assert ("kfac", 0.1, 0) in made
    (tmp_path / "fresh").mkdir()
    fresh, _ = table_of(second_order, monkeypatch, tmp_path / "fresh")
    assert row == fresh
    assert row[1:] == ["89.50", "3 / 3.00 s (0.03; 1 of 1)", "3 / 3.00 s (0.05; 1 of 1)"]
    # One that ended where another rate was faster is not: it tells enough.
    again, made = table_of(second_order, monkeypatch, tmp_path)
    assert (again, made) == (row, [])


def test_a_seed_without_a_goal_has_no_runs(second_order, tmp_path, monkeypatch):
    row, made = table_of(second_order, monkeypatch, tmp_path, seeds=2, failing=[2])
    assert row[1:] == ["89.50", "3 / 3.00 s (0.03; 1 of 1)", "3 / 3.00 s (0.05; 1 of 1)"]
    assert not [run for run in made if run[0] == "kfac" and run[2] == 2]


def test_runs_with_seconds_of_the_clock_are_made_again(second_order, tmp_path, monkeypatch):
    row, made = table_of(second_order, monkeypatch, tmp_path)
    file = tmp_path / second_order.FILE
    file.write_text(file.read_text().replace('"spent_s"', '"epoch_s"'))
    shown, none = table_of(second_order, monkeypatch, tmp_path, only_table=True)
    assert (shown, none) == (["cora", "-"], [])
    assert table_of(second_order, monkeypatch, tmp_path) == (row, made)


@pytest.mark.slow
def test_the_table_over_links_takes_epochs_from_the_runs_on_threads(repository, tmp_path):
    some = ["--sets", "cora", "--cuts", "random", "--parts", 2, "--seeds", 1, "--eval-every", 2]
    script = repository / "examples/strategies/presets.py"
    run(script, "out", *some, "--halos", "bytegrad,cgx", "--epochs", 6, cwd=tmp_path)
    script = repository / "examples/lab/over_links.py"
    words = ["out", *some, "--dry", "--rates", "1gbit", "--halos", "exact,bytegrad,cgx"]
    words += ["--live", "auto/auto", "--live-seeds", 1, "--live-epochs", 4, "--timed", 2]
    shown = run(script, *words, cwd=tmp_path).stdout
    known = {one["halo"]: one for one in lines_of(tmp_path / "out/accuracy.jsonl")}
    runs = {one["halo"]: one for one in lines_of(tmp_path / "out/lab.jsonl")}
    assert runs["exact"]["num_epochs"] == 2, "all of its epochs are alike"
    assert runs["auto/auto"]["num_epochs"] == 4
    goal = max(point["val_metric"] for point in known["exact"]["curve"]) - 0.005
    assert {one["goal"] for one in runs.values()} == {goal}
    for row in rows_of(shown):
        name = row[0].strip("`")
        if name in known:
            there = [one for one in known[name]["curve"] if one["val_metric"] >= goal][:1]
            assert row[2:4] == [f"{len(there)} of 1", str(there[0]["epochs"]) if there else "-"]
            sent = sum(there[0][key] for key in ("halo_bytes", "weight_bytes")) if there else 0
            assert row[4] == (f"{sent / 1e6:.1f}" if there else "-")
        if name in runs:
            seconds = runs[name]["epoch_s"] + runs[name]["eval_s"]
            assert row[5] == f"{1e3 * seconds:.0f}"
        if name == "exact":
            assert row[7] == f"{seconds * there[0]['epochs']:.1f}"
    chosen = runs["auto/auto"]
    assert f"`{chosen['strategy']}`, weights `{chosen['weights_strategy']}`" in shown
    again = run(script, *words, cwd=tmp_path).stdout
    assert rows_of(again) == rows_of(shown)


def test_the_table_of_the_lab_compares_with_exact_training(repository, tmp_path):
    script = repository / "examples/lab/strategies.py"
    words = ["out", "--dry", "--hosts", 2, "--rates", "1gbit", "--cuts", "random", "--epochs", 4]
    words += ["--sets", "synthetic:planted,num_vertices=300", "--evaluations", "exact"]
    words += ["--halos", "exact,int8"]
    first = run(script, *words, cwd=tmp_path)
    exact, coded = lines_of(tmp_path / "out/strategies.jsonl")
    assert (exact["halo"], coded["halo"]) == ("exact", "int8")
    assert exact["goal"] == coded["goal"] == pytest.approx(exact["val_metric"] - 0.005)
    assert exact["epochs_to_goal"] <= 4
    assert 2 * coded["halo_bytes"] < exact["halo_bytes"]
    assert coded["eval_halo_bytes"] == exact["eval_halo_bytes"]
    rows = rows_of(first.stdout)
    assert [row[3:5] for row in rows] == [["exact", "exact"], ["int8", "exact"]]
    assert rows[0][-2] == "1.00"
    again = run(script, *words, cwd=tmp_path)
    assert len(lines_of(tmp_path / "out/strategies.jsonl")) == 2
    assert rows_of(again.stdout) == rows


@pytest.mark.slow
def test_other_rates_are_timed_by_a_few_epochs_of_a_steady_run(repository, tmp_path):
    script = repository / "examples/lab/strategies.py"
    words = ["out", "--dry", "--hosts", 2, "--rates", "10gbit,1gbit", "--cuts", "random"]
    words += ["--sets", "synthetic:planted,num_vertices=300", "--evaluations", "exact"]
    words += ["--halos", "int8,every(3)", "--epochs", 6, "--timed", 2]
    first = run(script, *words, cwd=tmp_path)
    lines = lines_of(tmp_path / "out/strategies.jsonl")
    by_cell = {(one["rate"], one["halo"]): one for one in lines}
    for halo in ("exact", "int8"):
        full, short = by_cell["10gbit", halo], by_cell["1gbit", halo]
        assert ("timed" in full, short["timed"]) == (False, 2)
        same = ("num_epochs", "metrics", "goal", "epochs_to_goal", "halo_bytes")
        assert all(full[name] == short[name] for name in same)
    # Not every epoch sends rows.
    assert "timed" not in by_cell["1gbit", "every(3)"]
    assert by_cell["1gbit", "every(3)"]["num_epochs"] == 6
    assert [row[:1] + row[3:4] for row in rows_of(first.stdout)] == [
        [rate, halo] for rate in ("10gbit", "1gbit") for halo in ("exact", "int8", "every(3)")
    ]


def test_the_table_of_the_lab_says_where_a_code_is_worth_it(repository, load_script, monkeypatch):
    monkeypatch.syspath_prepend(str(repository / "examples/lab"))
    script = load_script("examples/lab/strategies.py")
    options = argparse.Namespace(rates=["1gbit", "100mbit"], sets=["cora"], cuts=["metis"])
    options.halos, options.evaluations, options.weights = ["exact", "int8"], ["exact"], ["exact"]
    options.optimizers = ["-"]
    seconds = {"1gbit": (10.0, 9.5), "100mbit": (40.0, 10.0)}
    done = {}
    for cell in script.cells(options):
        line = {**cell._asdict(), "time_to_goal_s": seconds[cell.rate][cell.halo == "int8"]}
        done[cell] = {**line, "test_metric": 0.80 if cell.halo == "exact" else 0.79}
    expected = [
        ["1gbit", "cora", "metis", "10.0", *["exact"] * 3, "-", "-", "-"],
        ["100mbit", "cora", "metis", "40.0", "int8", "exact", "exact", "-", "4.00", "-1.00"],
    ]
    assert script.best_rows(done, options) == expected
    # Without exact training there is nothing to compare with.
    first = next(cell for cell in done if cell.rate == "1gbit" and cell.halo == "exact")
    rest = {cell: line for cell, line in done.items() if cell != first}
    assert script.best_rows(rest, options) == expected[1:]
    # A run that never got there is no candidate.
    last = next(cell for cell in done if cell.rate == "100mbit" and cell.halo == "int8")
    done[last]["time_to_goal_s"] = None
    assert script.best_rows(done, options)[1][4:] == ["exact"] * 3 + ["-", "-", "-"]


def test_a_short_run_with_other_metrics_says_nothing(repository, load_script, monkeypatch):
    monkeypatch.syspath_prepend(str(repository / "examples/lab"))
    timed = load_script("examples/lab/strategies.py").timed
    full = {"metrics": [0.5, 0.6, 0.7, 0.8], "num_epochs": 4, "goal": 0.7, "epochs_to_goal": 3}
    full |= {"val_metric": 0.8, "test_metric": 0.75}
    short = {"metrics": [0.5, 0.6], "num_epochs": 2, "median_epoch_s": 2.0, "median_eval_s": 0.5}
    short |= {"halo_bytes": 10, "interface_bytes": 20, "time_to_goal_s": None}
    line = timed(short, full)
    assert line["time_to_goal_s"] == 3 * (2.0 + 0.5)
    assert (line["halo_bytes"], line["interface_bytes"], line["timed"]) == (20, 40, 2)
    assert timed({**short, "metrics": [0.4, 0.6]}, full) is None
    # Screened: the last epoch of each run has a metric; what reached the goal was measured.
    screened = {**full, "metrics": [0.5, None, 0.7, 0.8]}
    assert timed(short, screened)["time_to_goal_s"] == 3 * (2.0 + 0.5)
    whole = {**short, "metrics": [0.5, None, 0.7], "num_epochs": 3, "time_to_goal_s": 7.0}
    assert timed(whole, screened)["time_to_goal_s"] == 7.0
    never = timed(short, {**full, "epochs_to_goal": None})
    assert never["time_to_goal_s"] is None


@pytest.mark.slow
def test_the_table_of_the_lab_counts_a_head_start_apart(repository, tmp_path):
    script = repository / "examples/lab/strategies.py"
    words = ["out", "--dry", "--hosts", 2, "--rates", "1gbit", "--cuts", "random", "--epochs", 4]
    words += ["--sets", "synthetic:planted,num_vertices=300", "--evaluations", "exact"]
    words += ["--halos", "exact", "--optimizers", "adam,mlp+kfac"]
    first = run(script, *words, cwd=tmp_path)
    file = tmp_path / "out/strategies.jsonl"
    adam, started = lines_of(file)
    assert (adam["start"], started["start"]) == (0, 20)
    on_graph = started["epochs_to_goal"] - 20
    assert 1 <= on_graph <= 4
    rows = rows_of(first.stdout)
    # Epochs of the start send no rows, so each epoch on the graph sends as many as one of Adam.
    assert [row[7:9] for row in rows] == [rows[0][7:9]] * 2
    assert [row[-4] for row in rows] == [str(adam["epochs_to_goal"]), f"{on_graph} + 20"]
    # A line that does not say how long the start was has medians of all its epochs.
    file.write_text("".join(json.dumps({**one, "start": 0}) + "\n" for one in (adam, started)))
    file.write_text(file.read_text().replace('"start": 0, ', ""))
    shown = run(script, *words, "--only-table", cwd=tmp_path)
    assert rows_of(shown.stdout) == rows[:1]


@pytest.mark.parametrize("names", ["adam,sgd", "-,adam"])
def test_the_table_of_the_lab_knows_its_optimizers(names, repository, tmp_path):
    script = repository / "examples/lab/strategies.py"
    done = subprocess.run(
        [sys.executable, str(script), "out", "--only-table", f"--optimizers={names}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    wrong = "sgd" if "sgd" in names else "-"
    message = f"'{wrong}' is none of adam, kfac, mlp+kfac; give some of them, or '-' alone"
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
