"""Lines of runs, of which the last one may be half there."""

from __future__ import annotations

import json

from distgnn.bench.lines import read_lines


def test_a_line_that_was_cut_off_is_removed_before_the_next(tmp_path):
    file = tmp_path / "runs.jsonl"
    assert read_lines(file) == []
    assert not file.exists()
    file.write_text('{"run": 1}\n{"run": 2}\n{"ru')
    assert read_lines(file) == [{"run": 1}, {"run": 2}]
    with file.open("a") as out:
        out.write(json.dumps({"run": 3}) + "\n")
    assert [values["run"] for values in read_lines(file)] == [1, 2, 3]
    file.write_text('{"ru')
    assert read_lines(file) == []
