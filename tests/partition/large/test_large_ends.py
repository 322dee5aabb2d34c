from __future__ import annotations

import shutil
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from large_graphs import open_folder, roots_by_metis, write_folder
from large_runs import StoppedError, communities, content, run

from distgnn import __version__
from distgnn.datasets import InputError
from distgnn.partition.directory.store import read_manifest
from distgnn.partition.large import budget, sort_rows
from distgnn.partition.large.budget import least_bytes
from distgnn.partition.large.input import SourceText
from distgnn.partition.large.pipeline import Places, Settings, partition
from distgnn.partition.large.work import WorkFolder
from distgnn.partition.large.writing import Writer


def stopped(folder: Path, out: Path, patch: Any, name: str, first: str = "") -> None:
    """Run until something is called, with a path of that name as the first argument if given."""

    def stop(*arguments: Any, **options: Any) -> None:
        if not first or arguments[0].name == first:
            raise StoppedError
        rmtree(*arguments, **options)

    rmtree = shutil.rmtree
    with patch.context() as inner:
        inner.setattr(name, stop)
        with pytest.raises(StoppedError):
            run(folder, out)


REMOVE = "distgnn.partition.large.work.WorkFolder.remove"
REPLACE = "distgnn.partition.large.pipeline.replace"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_run_that_ended_while_its_work_folder_was_removed_is_complete(
    overwrite: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = write_folder(tmp_path / "graph", communities(100)), tmp_path / "out"
    stopped(folder, out, monkeypatch, REMOVE)
    (tmp_path / "out.work" / "root-part.npy").unlink()
    state = tmp_path / "out.work" / "state.json"
    # Nothing is left to do, so that another version may do it.
    state.write_text(state.read_text().replace(f'"{__version__}"', '"0.0.9"'))
    assert '"0.0.9"' in state.read_text()
    before = {path: path.read_bytes() for path in out.rglob("*.npy")}
    places = Places(directory=out, work=tmp_path / "out.work", overwrite=overwrite)
    memory = least_bytes(open_folder(folder), 4)
    manifest = partition(
        SourceText(source=str(folder)),
        places,
        Settings(num_parts=4, memory_bytes=memory),
        choose_roots=roots_by_metis,
    )
    assert manifest == read_manifest(out)
    assert {path: path.read_bytes() for path in out.rglob("*.npy")} == before
    assert len(before) == len(manifest.files)
    assert not places.work.exists()


def test_what_is_recorded_is_removed_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = write_folder(tmp_path / "graph", communities(100)), tmp_path / "out"
    stopped(folder, out, monkeypatch, "shutil.rmtree", "out.work")
    names = {path.name for path in (tmp_path / "out.work").iterdir()}
    assert names == {"state.json", "lock"}
    assert run(folder, out).fingerprint == read_manifest(out).fingerprint
    assert not (tmp_path / "out.work").exists()


def test_a_complete_run_whose_partition_is_gone_is_an_input_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = write_folder(tmp_path / "graph", communities(100)), tmp_path / "out"
    stopped(folder, out, monkeypatch, REMOVE)
    out.rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"complete, but that is no longer what .* holds; remove"):
        run(folder, out)
    run(folder, tmp_path / "elsewhere2", 3)
    (tmp_path / "elsewhere2").rename(out)
    with pytest.raises(InputError, match=r"complete, but that is no longer what .* holds; remove"):
        run(folder, out)


def test_a_run_that_ended_before_its_parts_were_moved_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = write_folder(tmp_path / "graph", communities(100)), tmp_path / "out"
    stopped(folder, out, monkeypatch, REPLACE)
    assert run(folder, out) == read_manifest(out)


def test_a_part_whose_files_are_gone_is_an_input_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = write_folder(tmp_path / "graph", communities(100)), tmp_path / "out"
    stopped(folder, out, monkeypatch, REPLACE)
    (tmp_path / "out.work" / "parts" / "part-0001" / "indices.npy").write_bytes(b"")
    with pytest.raises(InputError, match=r"part 1 was written .* 0 of its \d+ edges are; remove"):
        run(folder, out)
    assert not out.exists()


def test_a_part_whose_files_are_gone_is_written_again_from_its_edges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = write_folder(tmp_path / "graph", communities(100)), tmp_path / "out"
    straight = run(folder, tmp_path / "straight")
    stopped(folder, out, monkeypatch, "distgnn.partition.large.writing._load_record")
    shutil.rmtree(tmp_path / "out.work" / "parts")
    assert content(run(folder, out)) == content(straight)


def test_roots_are_saved_before_their_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = write_folder(tmp_path / "graph", communities(100)), tmp_path / "out"
    stopped(folder, out, monkeypatch, "shutil.rmtree", "roots")
    work = tmp_path / "out.work"
    assert (work / "root-part.npy").exists()
    assert (work / "roots").is_dir()
    stopped(folder, out, monkeypatch, "distgnn.partition.large.pipeline.count")
    assert not (work / "roots").exists()


def test_a_lack_of_disk_later_on_keeps_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = write_folder(tmp_path / "graph", communities(100)), tmp_path / "out"
    stopped(folder, out, monkeypatch, "distgnn.partition.large.work.WorkFolder.save")
    (tmp_path / "out.work" / "roots" / "label.npy").write_bytes(b"hours of work")
    with monkeypatch.context() as patch:
        patch.setattr(budget, "STORED_EDGE_BYTES", 1 << 50)
        with pytest.raises(InputError, match="make room or choose another disk"):
            run(folder, out)
    assert (tmp_path / "out.work" / "roots" / "label.npy").exists()


def test_links_and_the_arrays_of_an_edge_list_are_no_room_that_will_be_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = write_folder(tmp_path / "graph", communities(100)), tmp_path / "out"
    stopped(folder, out, monkeypatch, "distgnn.partition.large.work.WorkFolder.save")
    work = tmp_path / "out.work"
    with (tmp_path / "huge.npy").open("wb") as file:
        file.truncate(1 << 40)
    (work / "source" / "features.npy").symlink_to(tmp_path / "huge.npy")
    (work / "link.npy").symlink_to(tmp_path / "huge.npy")
    with (work / "source" / "edge_index.npy").open("wb") as file:
        file.truncate(1 << 40)
    monkeypatch.setattr(budget, "STORED_EDGE_BYTES", 1 << 26)
    free = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr("distgnn.partition.large.pipeline.shutil.disk_usage", lambda path: free)
    with pytest.raises(InputError, match=r"but 0\.0 GiB are free; make room"):
        run(folder, out)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no second file system")
def test_a_work_folder_on_another_disk_is_an_input_error(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "graph", communities(100))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        places = Places(directory=tmp_path / "out", work=Path(elsewhere) / "work")
        with pytest.raises(InputError, match=r"is on another file system than .*; choose one bes"):
            partition(
                SourceText(source=str(folder)),
                places,
                Settings(num_parts=2),
                choose_roots=roots_by_metis,
            )


def test_a_bound_of_memory_that_was_not_given_is_kept(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "graph", communities(200))

    def stop(line: str) -> None:
        if line.startswith("placing"):
            raise StoppedError

    out = tmp_path / "out"
    with pytest.raises(StoppedError):
        run(folder, out, progress=stop, is_memory_given=False, memory_bytes=1 << 30)
    manifest = run(folder, out, is_memory_given=False, memory_bytes=2 << 30)
    assert manifest.options["memory_bytes"] == 1 << 30


def test_a_bound_that_more_ranks_on_a_host_cannot_keep_is_an_input_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = write_folder(tmp_path / "graph", communities(200)), tmp_path / "out"
    begun = {"is_memory_given": False, "memory_bytes": 6 << 30}
    with monkeypatch.context() as patch:
        patch.setattr("distgnn.partition.large.pipeline._Run.count", stop_here)
        with pytest.raises(StoppedError):
            run(folder, out, **begun)
    sentence = r"begun with 6 GiB .* but the 3 ranks on this host have 13 GiB; start at most 2 on a"
    more = {"is_memory_given": False, "memory_bytes": 3 << 30, "available_bytes": 13 << 30}
    with pytest.raises(InputError, match=sentence):
        run(folder, out, ranks_per_host=3, **more)
    manifest = run(folder, out, ranks_per_host=2, **more)
    assert manifest.options["memory_bytes"] == 6 << 30


def stop_here(*_: Any, **__: Any) -> None:
    raise StoppedError


@pytest.mark.parametrize(("out", "work"), [("p", "p/work"), ("work/p", "work"), ("p", "p")])
def test_a_work_folder_in_the_partition_is_an_input_error(
    out: str, work: str, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "graph", communities(100))
    places = Places(directory=tmp_path / out, work=tmp_path / work)
    with pytest.raises(InputError, match="lies in the other; choose two folders beside each othe"):
        partition(
            SourceText(source=str(folder)),
            places,
            Settings(num_parts=2),
            choose_roots=roots_by_metis,
        )
    assert not (tmp_path / work).exists()


def test_memory_that_no_window_fits_into_is_told(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("distgnn.partition.large.windows.BYTES_PER_EDGE", 10**9)
    said: list[str] = []
    run(write_folder(tmp_path / "graph", communities()), tmp_path / "out", progress=said.append)
    (line,) = [line for line in said if "nothing is refined" in line]
    assert line.startswith("nothing is refined, so more rows travel: windows of two parts take ")
    assert line.endswith(" GiB more than --memory allows")


def test_windows_that_cannot_be_numbered_are_told(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("distgnn.partition.refine.placement.MOST_VERTICES", 20)
    said: list[str] = []
    run(write_folder(tmp_path / "graph", communities()), tmp_path / "out", progress=said.append)
    (line,) = [line for line in said if "nothing is refined" in line]
    assert line.endswith(" edges more than can be numbered; use more parts")


def test_a_partition_that_comes_first_stays_and_the_parts_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = write_folder(tmp_path / "graph", communities(100)), tmp_path / "out"

    def come_first(*_: Any) -> None:
        out.mkdir()
        (out / "notes").write_text("mine")

    with monkeypatch.context() as patch:
        patch.setattr("distgnn.partition.large.pipeline.sync_directory", come_first)
        with pytest.raises(InputError, match="is not a partition directory, so it is left alone"):
            run(folder, out)
    assert (out / "notes").read_text() == "mine"
    shutil.rmtree(out)
    assert run(folder, out) == read_manifest(out)


def test_an_edge_list_that_was_read_stays_where_disk_is_lacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "e.csv"
    file.write_text("".join(f"{k},{(k + 1) % 50}\n" for k in range(50)))
    monkeypatch.setattr(budget, "STORED_EDGE_BYTES", 1 << 50)
    with pytest.raises(InputError, match=r"are free; make room .*; the same command goes on from"):
        partition(
            SourceText(source=str(file)),
            Places(directory=tmp_path / "out", work=tmp_path / "out.work"),
            Settings(num_parts=2),
            choose_roots=roots_by_metis,
        )
    assert (tmp_path / "out.work" / "source" / "src.npy").exists()


def test_an_edge_list_that_was_read_stays_where_memory_is_lacking(tmp_path: Path) -> None:
    file = tmp_path / "e.csv"
    file.write_text("".join(f"{k},{(k + 1) % 50}\n" for k in range(50)))

    def cut(memory_bytes: int) -> Any:
        return partition(
            SourceText(source=str(file)),
            Places(directory=tmp_path / "out", work=tmp_path / "out.work"),
            Settings(num_parts=2, memory_bytes=memory_bytes, is_memory_given=False),
            choose_roots=roots_by_metis,
        )

    with pytest.raises(
        InputError, match=r"are not enough for 2 parts .*; the same command goes on"
    ):
        cut(1 << 20)
    assert (tmp_path / "out.work" / "source" / "src.npy").exists()
    assert cut(1 << 30).options["memory_bytes"] == 1 << 30


def test_a_file_that_was_lost_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = write_folder(tmp_path / "graph", communities(200)), tmp_path / "out"
    stopped(folder, out, monkeypatch, "distgnn.partition.large.pipeline._Run.place")
    lost = tmp_path / "out.work" / "in_degree.npy"
    lost.unlink()
    sentence = f"cannot continue: No such file or directory: '{lost}'; mend that and .* or remove '"
    with pytest.raises(InputError, match=sentence):
        run(folder, out)


def test_edges_that_were_lost_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = write_folder(tmp_path / "graph", communities(200)), tmp_path / "out"
    stopped(folder, out, monkeypatch, "distgnn.partition.large.pipeline._Run.arrange")
    (tmp_path / "out.work" / "pile-00000").unlink()
    with pytest.raises(
        InputError, match=r"hold \d+ edges, but the graph has \d+: files of the fold"
    ):
        run(folder, out)
    assert not out.exists()


def test_pairs_of_parts_count_where_memory_is_divided(tmp_path: Path) -> None:
    source = open_folder(write_folder(tmp_path / "graph", communities(100)))
    with pytest.raises(InputError, match=r"not enough for 4000 parts .* or ask for fewer parts$"):
        budget.budget_of(source, 4000, 2 << 30)


def test_any_balance_of_edges_may_be_allowed(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "graph", communities(100))
    assert run(folder, tmp_path / "out", edge_balance=1e30).quality["halo_rows"] >= 0


def test_no_window_has_more_edges_than_refinement_can_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_folder(write_folder(tmp_path / "graph", communities(100)))
    assert budget.budget_of(source, 4, 1 << 50).window_edges == 2**30 - 1
    monkeypatch.setattr(budget.placement, "MOST_VERTICES", 99)
    assert budget.budget_of(source, 4, 1 << 50).window_edges == 49


def test_types_of_vertices_take_memory(tmp_path: Path) -> None:
    source = open_folder(write_folder(tmp_path / "graph", communities(100)))
    kinds = np.zeros(source.edges.num_vertices, np.int64)
    typed = replace(source, vertices=replace(source.vertices, vertex_type=kinds))
    assert least_bytes(typed, 4) - least_bytes(source, 4) == kinds.nbytes


def test_parts_are_written_at_a_time_where_memory_holds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "available_threads", lambda: 3)
    source = open_folder(write_folder(tmp_path / "graph", communities(100)))
    part = 10**6 * budget.writing.BYTES_PER_EDGE
    part += budget.PART_VERTEX_BYTES * source.edges.num_vertices
    slices = 3 * budget.writing.SLICE_BYTES
    assert budget.parts_at_once(source, 2 * (part + slices) - 1, 10**6) == 1
    assert budget.parts_at_once(source, 2 * (part + slices), 10**6) == 2
    # Without features there are no slices of them.
    without = replace(source, features=None)
    assert budget.parts_at_once(without, 2 * part, 10**6) == 2
    assert budget.parts_at_once(source, 1 << 40, 10**6) == 3
    assert budget.parts_at_once(source, 0, 10**6) == 1


def test_covers_of_piles_are_found_at_a_time_where_memory_holds_one_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "available_threads", lambda: 3)
    source = open_folder(write_folder(tmp_path / "graph", communities(100)))
    pile = 10**6 * budget.covers.BYTES_PER_EDGE
    pile += budget.PILE_VERTEX_BYTES * source.edges.num_vertices
    assert budget.piles_at_once(source, 0, 10**6) == 1
    # Beside those whose covers are found, one is being placed.
    assert budget.piles_at_once(source, 2 * pile, 10**6) == 1
    assert budget.piles_at_once(source, 3 * pile - 1, 10**6) == 1
    assert budget.piles_at_once(source, 3 * pile, 10**6) == 2
    assert budget.piles_at_once(source, 1 << 40, 10**6) == 3


def test_covers_of_two_piles_are_found_where_memory_holds_few_edges_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "available_threads", lambda: 3)
    source = open_folder(write_folder(tmp_path / "graph", communities(100)))
    least = least_bytes(source, 4)
    few = budget.FEW_PILE_EDGES * budget.covers.BYTES_PER_EDGE
    for more in (3 * few + (1 << 20), 10 * few, 1 << 32):
        plan = budget.budget_of(source, 4, least + more)
        assert budget.FEW_PILE_EDGES <= plan.pile_edges <= budget.MOST_PILE_EDGES
        assert budget.piles_at_once(source, plan.free_bytes, plan.pile_edges) >= 2
    # As large as there is memory for one, up to a few edges.
    for more in (0, few // 2, 2 * few):
        plan = budget.budget_of(source, 4, least + more)
        fits = budget.largest_pile(plan.free_bytes)
        assert plan.pile_edges == min(fits, budget.FEW_PILE_EDGES)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_work_that_was_begun_with_other_piles_goes_on(
    is_recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, record = write_folder(tmp_path / "graph", communities(100)), WorkFolder.record

    def forget(work: WorkFolder, **facts: Any) -> None:
        """Record no size of piles, like versions that split edges into as large ones as fit."""
        if "pile_edges" not in facts:
            record(work, **facts)

    monkeypatch.setattr(budget, "_pile_edges", lambda *_: 60)
    before = run(folder, tmp_path / "before")
    with monkeypatch.context() as patch:
        if not is_recorded:
            patch.setattr(WorkFolder, "record", forget)
            monkeypatch.setattr(budget, "MOST_PILE_EDGES", 60)
        patch.setattr("distgnn.partition.large.pipeline.cover", stop_here)
        with pytest.raises(StoppedError):
            run(folder, tmp_path / "out")
    monkeypatch.setattr(budget, "_pile_edges", lambda *_: 10**6)
    assert content(run(folder, tmp_path / "out")) == content(before)
    # Otherwise the same piles would show nothing.
    assert content(run(folder, tmp_path / "larger")) != content(before)


def test_parts_that_are_written_at_a_time_are_those_of_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, write_inner = write_folder(tmp_path / "graph", communities(100)), Writer.write_inner
    memory = 2 * least_bytes(open_folder(folder), 4)
    monkeypatch.setattr(budget, "available_threads", lambda: 1)
    alone = run(folder, tmp_path / "alone", memory_bytes=memory)
    # Two threads wait for each other, each with a work array of its own.
    met, tables = threading.Barrier(2), list[int]()

    def meet(writer: Writer, *given: Any) -> None:
        tables.append(id(writer.tables.local_id))
        met.wait(60)
        write_inner(writer, *given)

    monkeypatch.setattr(Writer, "write_inner", meet)
    monkeypatch.setattr(budget, "available_threads", lambda: 2)
    monkeypatch.setattr(sort_rows, "available_threads", lambda: 2)
    assert run(folder, tmp_path / "beside", memory_bytes=memory) == alone
    assert len(set(tables)) == 2
