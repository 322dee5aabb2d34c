"""The straight study of `examples/tuning/random_kills.py`: when it is run, and what its time is."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest


@pytest.fixture
def campaign(load_script, tmp_path, monkeypatch):
    module = load_script("examples/tuning/random_kills.py")

    def made(code, *, within_s):
        """Build a campaign whose studies run some code in their folder."""
        found = module.Campaign("study", "cora", tmp_path, 0, time.monotonic() + within_s)

        def start(study):
            study.mkdir(exist_ok=True)
            return subprocess.Popen([sys.executable, "-c", code], cwd=study)

        monkeypatch.setattr(found, "start", start)
        return found

    return made


ENDS = "open('summary.json', 'w').write('{\"seconds\": 123.0}')"


def test_a_straight_study_is_timed_where_it_was_run_whole(campaign, tmp_path):
    whole = campaign(ENDS, within_s=600)
    whole.straight()
    assert whole.whole_s == json.loads((tmp_path / "study-straight.json").read_text()) < 600


def test_a_straight_study_that_continues_has_the_time_of_its_trials(campaign, tmp_path):
    (tmp_path / "study-straight").mkdir()
    rest = campaign(ENDS, within_s=60)
    rest.straight()
    assert not (tmp_path / "study-straight.json").exists()
    assert rest.whole_s == 123.0


def test_a_straight_study_stops_with_the_script(campaign, tmp_path):
    stopped = campaign("import time; time.sleep(600)", within_s=0.5)
    stopped.straight()
    assert stopped.is_late
    assert not (tmp_path / "study-straight.json").exists()
    stopped.straight()  # Nothing is started: the time is up.
