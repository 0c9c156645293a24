"""Opening recordings: the content decides what a file is, and what cannot be opened is refused in one clear line."""

from __future__ import annotations

import gzip
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from profkit import InputError, open_trace, save_bundle
from profkit.traces import Run, Sweep, SweepRun, load_sweep, open_ranks, open_recordings, save_sweep
from profkit.traces.sweep import ServerFailure, failures_in_words
from tests.builders import TraceBuilder
from tests.nsys_files import NsysFile, small_step, to_parquet
from tests.resources import user_without_rights
from tests.traces import kineto_files


def zstd(data: bytes) -> bytes:
    return pa.Codec("zstd").compress(data, asbytes=True)  # type: ignore[no-any-return]


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes, "gzip": gzip.compress, "xz": lzma.compress, "zstd": zstd,
}  # fmt: skip
NAMES = ("meaningless", "trace.json", "export.sqlite", "rec.nsys-rep", "x.gz", "a b'c.txt")


def kineto(folder: Path) -> Path:
    return kineto_files.write(folder / "k.json", kineto_files.launch(1, 2), kineto_files.kernel(5, 3))


def bundle(folder: Path) -> Path:
    save_bundle(TraceBuilder().launch(1, 2, "gemm", 5, 8).trace(), folder)
    return folder


# -- Detection -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("source", ["nsys", "kineto"])
def test_content_decides(source: str, compression: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    made = tmp_path / "made" / "file"
    raw = (small_step().write(made) if source == "nsys" else kineto(tmp_path / "made")).read_bytes()
    hidden = tmp_path / name
    packed = COMPRESSIONS[compression](raw)
    hidden.write_bytes(packed)
    trace = open_trace(hidden)
    assert (trace.source.format, len(trace.ops)) == (source, 2 if source == "nsys" else 1)
    assert hidden.read_bytes() == packed


@pytest.mark.parametrize("name", ["meaningless", "trace.json", "export.sqlite"])
def test_folders_under_any_name(name: str, tmp_path: Path) -> None:
    assert len(open_trace(bundle(tmp_path / name)).ops) == 1
    export = to_parquet(small_step().write(tmp_path / "e"), tmp_path / f"{name}.folder")
    assert open_trace(export).source.format == "nsys"


def test_nothing_is_left_beside_the_input(tmp_path: Path) -> None:
    file = tmp_path / "export"
    file.write_bytes(gzip.compress(small_step().write(tmp_path / "plain").read_bytes()))
    open_trace(file)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export", "plain"]


def test_read_only_input(tmp_path: Path) -> None:
    """SQLite would otherwise write journals beside the file."""
    file = small_step().write(tmp_path / "export.sqlite")
    file.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        assert len(open_trace(file).ops) == 2
    finally:
        tmp_path.chmod(0o755)


@pytest.mark.parametrize("name", ["100%.sqlite", "a?b#c.sqlite", "später.sqlite", "a;b.sqlite"])
def test_names_that_mean_something_in_addresses(name: str, tmp_path: Path) -> None:
    assert len(open_trace(small_step().write(tmp_path / name)).ops) == 2


def test_folder_of_ranks(tmp_path: Path) -> None:
    for rank in (0, 1):
        kineto_files.write(
            tmp_path / f"rank{rank}.json", kineto_files.launch(1, 2), kineto_files.kernel(5, 3),
            distributedInfo={"rank": rank, "world_size": 2},
        )  # fmt: skip
    (tmp_path / "README.md").write_text("how these were recorded", "utf-8")
    for trace in (open_trace(tmp_path), open_ranks([tmp_path / "rank0.json", tmp_path / "rank1.json"])):
        assert trace.ops.device.tolist() == [0, 1]
        assert [process.rank for process in trace.processes] == [0, 1]


# -- Sweeps --------------------------------------------------------------------------------------------------------


def sweep(folder: Path, *concurrencies: int, **more: Any) -> Path:
    runs = [SweepRun(concurrency=c, trace=f"c{c}", accept_len=3.5, tokens_per_s=100.0 * c) for c in concurrencies]
    for run in runs:
        bundle(folder / (run.trace or ""))
    record = Sweep(schema="profkit.sweep/1", config="ep2-dflash", runs=runs, graphs=True, block_size=8, **more)
    save_sweep(record, folder)
    return folder


def test_sweep_is_opened_by_concurrency(tmp_path: Path) -> None:
    folder = sweep(tmp_path / "s", 128, 1, 32)
    for path in (folder, folder / "sweep.json"):
        opened = open_recordings(path)
        assert [one.name for one in opened] == ["s/c1", "s/c32", "s/c128"]
    run = opened[1].trace.run
    assert run == Run("ep2-dflash", 32, True, 3.5, "reported by the server", 3200.0, 8)


def test_a_recording_of_a_sweep_has_the_sweeps_name_and_record(tmp_path: Path) -> None:
    folder = sweep(tmp_path / "fast", 32)
    (one,) = open_recordings(folder / "c32")
    assert (one.name, one.path, one.trace.run.tokens_per_s) == ("fast/c32", folder / "c32", 3200.0)
    assert open_recordings(bundle(folder / "other"))[0].name == "other"


@pytest.mark.parametrize(
    ("configuration", "model"),
    [
        ({"server": {"model_path": "moonshotai/Kimi-K2.6"}}, "Kimi-K2.6"),
        ({"server": {"model_path": "/models/Kimi-K2.6/"}, "dummy": {"target": "qwen3-8b"}}, "Kimi-K2.6"),
        ({"server": {}, "dummy": {"target": "qwen3-8b", "layers": None}}, "qwen3-8b"),
        ({"dummy": {"target": "qwen3-235b-a22b", "layers": 12}}, "qwen3-235b-a22b (12 layers)"),
        ({"server": None, "dummy": None}, ""),
        ("of another kind", ""),
    ],
)
def test_the_model_is_told_by_the_record(configuration: object, model: str, tmp_path: Path) -> None:
    folder = sweep(tmp_path / "s", 1, settings={"configuration": configuration})
    assert open_trace(folder).run.model == model


def test_sweep_with_one_recording_is_a_trace(tmp_path: Path) -> None:
    assert open_trace(sweep(tmp_path / "s", 1)).run.concurrency == 1


def test_one_trace_of_several_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a sweep with 2 recordings; open one of them: .*c1, .*c32"):
        open_trace(sweep(tmp_path / "s", 1, 32))


def test_sweep_with_nothing_recorded(tmp_path: Path) -> None:
    run = SweepRun(concurrency=1, failure="the server crashed while capturing graphs")
    save_sweep(Sweep(schema="profkit.sweep/1", config="x", runs=[run]), tmp_path)
    with pytest.raises(InputError, match=r"holds no recording \(the server crashed while capturing graphs\)"):
        open_trace(tmp_path)


@pytest.mark.parametrize(
    ("recorders", "said"),
    [
        (("", ""), r"\(start: it died; record c1: it hangs; not tried: the server had ended\)"),
        (("nsys", "nsys"), r"\(start: it died; record c1: it hangs; not tried: the server had ended\)"),
        (("nsys", "cupti"), r"\(nsys, start: it died; cupti, record c1: it hangs; not tried: the server had ended\)"),
    ],
)
def test_sweep_whose_servers_failed(recorders: tuple[str, str], said: str, tmp_path: Path) -> None:
    """The recorder is told where there are several; what a window says of the same failure is not repeated."""
    first, second = recorders
    failures = [
        ServerFailure(phase="start", fault="it died", graphs=True, recorder=first),
        ServerFailure(phase="record c1", fault="it hangs", graphs=True, recorder=second),
    ]
    words = ("record c1: it hangs", "not tried: the server had ended")
    runs = [SweepRun(concurrency=1, recorder=second, failure=failure) for failure in words]
    save_sweep(Sweep(schema="profkit.sweep/1", config="x", runs=runs, failures=failures), tmp_path)
    with pytest.raises(InputError, match=f"the sweep holds no recording {said}"):
        open_trace(tmp_path)


def test_a_failure_of_an_older_record(tmp_path: Path) -> None:
    old = b'{"schema": "profkit.sweep/1", "config": "x", "runs": [], "failures": [{"phase": "start", "fault": "no"}]}'
    (tmp_path / "sweep.json").write_bytes(old)
    (failure,) = load_sweep(tmp_path).failures
    assert (failure.recorder, failures_in_words(load_sweep(tmp_path))) == ("", ["start: no"])


def test_sweep_without_one_of_its_bundles(tmp_path: Path) -> None:
    folder = sweep(tmp_path / "s", 1)
    (folder / "c1").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"c1: named in sweep\.json but not there"):
        open_trace(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "no sweep record"),
        ('{"schema": "profkit.sweep/1"}', "no sweep record"),
        ('{"schema": "profkit.sweep/9", "config": "x", "runs": []}', "unknown sweep schema 'profkit.sweep/9'"),
    ],
)
def test_damaged_record(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(content, "utf-8")
    with pytest.raises(InputError, match=message):
        open_trace(tmp_path)


# -- What cannot be opened -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 100, "not a recording that profkit knows"),
        (b"time,kernel\n1,gemm\n", "not a recording that profkit knows"),
        (b'{"hello": "world"}', ""),
        (b"[1, 2, 3]", ""),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (gzip.compress(b"hello", mtime=0), "not a recording that profkit knows"),
        (b"\x1f\x8b\x08\x00 this is no gzip stream", ""),
        (b"SQLite format 3\0" + b"\0" * 50, "damaged SQLite file"),
        (b"SQLite format 3\0" + b"\xff" * 5_000, "damaged SQLite file"),
    ],
)
def test_not_a_recording(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.sqlite"
    file.write_bytes(content)
    with pytest.raises(InputError, match=rf"trace\.sqlite: .*{message}.*; \w+"):
        open_trace(file)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99, 0.9999])
def test_truncated_database(share: float, tmp_path: Path) -> None:
    file = small_step()
    for number in range(3_000):
        file.kernel(1_000 + number, 1_001 + number, 2, name=f"kernel {number}")
    whole = file.write(tmp_path / "whole").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(InputError, match=r"cut: damaged SQLite file \(cut off: [\d,]+ of [\d,]+ bytes\)"):
        open_trace(tmp_path / "cut")


@pytest.mark.parametrize("compression", ["gzip", "xz", "zstd"])
def test_truncated_stream_of_a_database(compression: str, tmp_path: Path) -> None:
    packed = COMPRESSIONS[compression](small_step().write(tmp_path / "whole").read_bytes())
    (tmp_path / "cut").write_bytes(packed[: len(packed) * 3 // 4])
    with pytest.raises(InputError, match="cut: the compressed file is cut off or damaged"):
        open_trace(tmp_path / "cut")


def test_database_of_something_else(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "cookies.sqlite") as connection:
        connection.execute("CREATE TABLE moz_cookies (id INTEGER, value TEXT)")
    connection.close()
    with pytest.raises(InputError, match=r"cookies\.sqlite: a SQLite database, but no export of Nsight Systems; "):
        open_trace(tmp_path / "cookies.sqlite")


def test_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the folder holds no recording"):
        open_trace(tmp_path)


def test_folder_of_bundles(tmp_path: Path) -> None:
    bundle(tmp_path / "one")
    bundle(tmp_path / "two")
    with pytest.raises(InputError, match="holds recordings but is none itself; name them one by one: one, two"):
        open_trace(tmp_path)


def test_folder_of_recordings_of_all_kinds(tmp_path: Path) -> None:
    """What lies beside them, such as JSON that is no trace, is not named."""
    kineto(tmp_path)
    (tmp_path / "a.sqlite.xz").write_bytes(lzma.compress(small_step().write(tmp_path / "b.sqlite").read_bytes()))
    (tmp_path / "c.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report" + b"\0" * 100)
    sweep(tmp_path / "s", 1)
    (tmp_path / "README.md").write_text("# captures", "utf-8")
    (tmp_path / "expected.json").write_text('{"a": 1}', "utf-8")
    with pytest.raises(InputError) as error:
        open_trace(tmp_path)
    assert error.value.path == tmp_path and error.value.fault == "holds recordings but is none itself"
    assert error.value.advice == "name them one by one: a.sqlite.xz, b.sqlite, c.nsys-rep, k.json, s"


def test_folder_of_a_rank_and_other_json(tmp_path: Path) -> None:
    kineto(tmp_path)
    (tmp_path / "config.json").write_text('{"model": "x", "layers": [1, 2]}', "utf-8")
    (tmp_path / "numbers.json").write_text('[{"a": 1}]', "utf-8")
    assert len(open_trace(tmp_path).ops) == 1


def test_folder_of_json_that_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "expected.json").write_text('{"a": 1}', "utf-8")
    with pytest.raises(InputError, match="the folder holds no recording"):
        open_trace(tmp_path)


@pytest.mark.parametrize("inside", [False, True])
def test_a_pipe_is_not_waited_for(inside: bool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    said = "the folder holds no recording" if inside else "pipe: a pipe cannot be read twice; save it to a file first"
    with pytest.raises(InputError, match=said):
        open_trace(tmp_path if inside else tmp_path / "pipe")


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder; check the path"):
        open_trace(tmp_path / "nothing")


def test_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(InputError, match="no such file or folder"):
        open_trace(tmp_path / "link")


def test_ranks_must_be_kineto(tmp_path: Path) -> None:
    one = kineto(tmp_path)
    two = small_step().write(tmp_path / "export.sqlite")
    with pytest.raises(InputError, match=r"export\.sqlite: not PyTorch profiler JSON; only such files"):
        open_ranks([one, two])


def forbid(path: Path) -> None:
    path.chmod(0)


@pytest.mark.parametrize("what", ["file", "folder", "bundle", "inside a closed folder", "export in a folder"])
def test_unreadable(what: str) -> None:
    with user_without_rights() as folder:
        (folder / "inner").mkdir()
        file = kineto(folder / "inner")
        if what == "file":
            forbid(file)
        elif what == "folder":
            file = folder / "inner"
            forbid(file)
        elif what == "bundle":
            file = bundle(folder / "bundle")
            forbid(file / "ops.parquet")
        elif what == "export in a folder":
            file = to_parquet(small_step().write(folder / "e"), folder / "export")
            forbid(file / "CUPTI_ACTIVITY_KIND_KERNEL.parquet")
        else:
            forbid(folder / "inner")
        with pytest.raises(InputError, match=r"(?i)(cannot read|may not be read|permission denied).*; \w+"):
            open_trace(file)


def test_huge_integers_are_refused(tmp_path: Path) -> None:
    """A time beyond 64 bits is stored as a float by SQLite, and would be rounded."""
    with pytest.raises(InputError, match="column end of table CUPTI_ACTIVITY_KIND_KERNEL"):
        open_trace(NsysFile().kernel(1, 2.5e19, 1).write(tmp_path / "export.sqlite"))  # type: ignore[arg-type]


def test_json_that_only_looks_like_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": "none"}), "utf-8")
    with pytest.raises(InputError, match=r"trace\.json: "):
        open_trace(file)
