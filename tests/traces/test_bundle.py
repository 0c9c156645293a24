"""The bundle on disk: what goes in comes out, and what is damaged is named."""

from __future__ import annotations

import errno
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from profkit import InputError, Trace, load_bundle, save_bundle
from profkit.traces import Device, Note, OutputError, Process, Run, Samples, Source
from tests.builders import TraceBuilder
from tests.resources import limited_file_size, little_disk


def everything() -> Trace:
    """A trace with a row in every table and a value in every field."""
    builder = TraceBuilder().rank(0).range(0, 90, "step:decode bs=1").range(1, 50, "target").note("warning", "beware")
    builder.collective_call(10, 20, "ncclAllReduce", "tp", 4096).launch(12, 14, "all_reduce", 30, 40)
    builder.graph(20, 25, ("gemm", 50, 60), ("µ-kernel <T>", 61, 70)).graph_node(1, 7, -5_000).orphan("HtoD", 80, 90)
    run = Run("ep2", 32, True, 3.5, "reported by the server", 812.5, 8, (1, 2, 4), "sglang", "note")
    trace = builder.rank(1).launch(1, 2, "gemm", 5, 6).run(run).trace()
    counter = len(trace.strings)
    return replace(
        trace,
        samples=Samples(np.array([5, 9]), np.array([0, 1]), np.array([counter, counter]), np.array([1.5, -0.25])),
        strings=(*trace.strings, "pcie_rx_bytes_per_s"),
        devices=(Device(0, "NVIDIA H200", 132, 4_800, 64, "0000:01:00.0"), Device(1)),
        processes=(Process(100, 0, "scheduler", "python3"), Process(101)),
        notes=(Note("graph_mode", "node"), Note("warning", "beware")),
        source=Source("nsys", "Nsight Systems", "2025.3", "3.20.3", "580.1", "rec.sqlite"),
    )


def texts_of(trace: Trace) -> dict[str, object]:
    """All columns, with string ids looked up: ids themselves may change."""
    from profkit.traces.model import STRING_COLUMNS

    columns: dict[str, object] = {}
    for name, table in trace.tables().items():
        for column, values in table.columns().items():
            looked_up = column in STRING_COLUMNS[name]
            texts = [trace.strings[i] if looked_up and i >= 0 else i for i in values.tolist()]
            columns[f"{name}.{column}"] = (texts, str(values.dtype))
    return columns


def test_round_trip(tmp_path: Path) -> None:
    trace = everything()
    save_bundle(trace, tmp_path / "bundle")
    loaded = load_bundle(tmp_path / "bundle")
    loaded.check()
    assert texts_of(loaded) == texts_of(trace)
    for field in ("processes", "devices", "notes", "source", "run"):
        assert getattr(loaded, field) == getattr(trace, field)


def test_round_trip_twice_is_the_same_to_the_byte(tmp_path: Path) -> None:
    save_bundle(everything(), tmp_path / "one")
    save_bundle(load_bundle(tmp_path / "one"), tmp_path / "two")
    one, two = ({f.name: f.read_bytes() for f in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two


def test_empty_trace(tmp_path: Path) -> None:
    save_bundle(TraceBuilder().trace(), tmp_path / "bundle")
    assert len(load_bundle(tmp_path / "bundle").ops) == 0


def test_manifest(tmp_path: Path) -> None:
    save_bundle(everything(), tmp_path / "bundle")
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_bytes())
    assert manifest["schema"] == "profkit.trace/1"
    assert manifest["source"]["tool_version"] == "2025.3" and manifest["source"]["driver"] == "580.1"
    files = {file.name for file in (tmp_path / "bundle").glob("*.parquet")}
    assert set(manifest["files"]) == files
    for name, checksum in manifest["files"].items():
        assert hashlib.sha256((tmp_path / "bundle" / name).read_bytes()).hexdigest() == checksum


def test_files_are_zstd_parquet(tmp_path: Path) -> None:
    save_bundle(everything(), tmp_path / "bundle")
    metadata = pq.read_metadata(tmp_path / "bundle" / "ops.parquet")
    assert {metadata.row_group(0).column(i).compression for i in range(metadata.num_columns)} == {"ZSTD"}


def test_strings_of_no_row_are_left_behind(tmp_path: Path) -> None:
    trace = replace(everything(), strings=(*everything().strings, "API_KEY=hunter2"))
    save_bundle(trace, tmp_path / "bundle")
    assert "API_KEY=hunter2" not in load_bundle(tmp_path / "bundle").strings


def test_columns_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        everything().ops.start[0] = 5


# -- Damage ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    save_bundle(everything(), tmp_path / "bundle")
    return tmp_path / "bundle"


def test_changed_file(bundle: Path) -> None:
    file = bundle / "ops.parquet"
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    with pytest.raises(InputError, match=r"ops\.parquet: changed since it was written \(the checksum differs\); "):
        load_bundle(bundle)


@pytest.mark.parametrize("name", ["ops.parquet", "strings.parquet", "ranges.parquet"])
def test_missing_file(bundle: Path, name: str) -> None:
    (bundle / name).unlink()
    with pytest.raises(InputError, match=rf"{name}: cannot read \(No such file or directory\)"):
        load_bundle(bundle)


def test_truncated_manifest(bundle: Path) -> None:
    file = bundle / "manifest.json"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match=r"manifest\.json: damaged manifest"):
        load_bundle(bundle)


@pytest.mark.parametrize("content", ["[]", "3", '{"schema": "profkit.trace/1"}', "{}", ""])
def test_manifest_of_something_else(bundle: Path, content: str) -> None:
    (bundle / "manifest.json").write_text(content, "utf-8")
    with pytest.raises(InputError, match=r"manifest\.json: "):
        load_bundle(bundle)


def test_newer_schema(bundle: Path) -> None:
    file = bundle / "manifest.json"
    file.write_text(file.read_text("utf-8").replace("profkit.trace/1", "profkit.trace/2"), "utf-8")
    with pytest.raises(InputError, match=r"unknown bundle schema 'profkit\.trace/2'; update profkit"):
        load_bundle(bundle)


def signed(bundle: Path, name: str, table: pa.Table) -> None:
    """Replaces a table of the bundle and its checksum, as a program that knows no better would."""
    pq.write_table(table, bundle / f"{name}.parquet")
    manifest = json.loads((bundle / "manifest.json").read_bytes())
    manifest["files"][f"{name}.parquet"] = hashlib.sha256((bundle / f"{name}.parquet").read_bytes()).hexdigest()
    (bundle / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def test_missing_column(bundle: Path) -> None:
    signed(bundle, "ops", pq.read_table(bundle / "ops.parquet").drop_columns(["graph_node"]))
    with pytest.raises(InputError, match=r"ops\.parquet: has no column 'graph_node'"):
        load_bundle(bundle)


def test_strings_without_their_column(bundle: Path) -> None:
    signed(bundle, "strings", pa.table({"something": ["else"]}))
    with pytest.raises(InputError, match=r"strings\.parquet: has no column 'text'"):
        load_bundle(bundle)


def test_string_ids_that_lead_nowhere(bundle: Path) -> None:
    signed(bundle, "strings", pa.table({"text": ["only one"]}))
    with pytest.raises(InputError, match=r"bundle: damaged bundle \(.* refers to a string that is not there\)"):
        load_bundle(bundle)


def test_column_of_another_type(bundle: Path) -> None:
    table = pq.read_table(bundle / "ops.parquet")
    column = pa.array(["x"] * len(table))
    signed(bundle, "ops", table.set_column(table.column_names.index("start"), "start", column))
    with pytest.raises(InputError, match=r"ops\.parquet: column 'start' holds something other than int64"):
        load_bundle(bundle)


def test_column_with_holes(bundle: Path) -> None:
    table = pq.read_table(bundle / "ops.parquet")
    column = pa.array([None] * len(table), pa.int64())
    signed(bundle, "ops", table.set_column(table.column_names.index("end"), "end", column))
    with pytest.raises(InputError, match=r"ops\.parquet: column 'end' has holes"):
        load_bundle(bundle)


def test_garbage_with_a_right_checksum(bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_bytes())
    (bundle / "ops.parquet").write_bytes(b"PAR1 nothing more")
    manifest["files"]["ops.parquet"] = hashlib.sha256(b"PAR1 nothing more").hexdigest()
    (bundle / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    with pytest.raises(InputError, match=r"ops\.parquet: damaged Parquet file"):
        load_bundle(bundle)


# -- Writing -----------------------------------------------------------------------------------------------------------


def test_an_older_bundle_is_replaced(bundle: Path) -> None:
    save_bundle(TraceBuilder().launch(1, 2, "gemm", 5, 6).trace(), bundle)
    assert len(load_bundle(bundle).ops) == 1
    assert sorted(bundle.parent.iterdir()) == [bundle]


def test_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", "utf-8")
    with pytest.raises(OutputError, match="there is something else there"):
        save_bundle(everything(), tmp_path)
    with pytest.raises(OutputError, match="there is something else there"):
        save_bundle(everything(), tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text("utf-8") == "mine"


def test_an_empty_folder_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    save_bundle(everything(), tmp_path / "bundle")
    load_bundle(tmp_path / "bundle").check()


def large() -> Trace:
    """More than fits into the little disk: random times do not compress."""
    random = np.random.default_rng(0)
    builder = TraceBuilder()
    for start in random.integers(0, 2**60, 20_000).tolist():
        builder.orphan("gemm", start, start + 5)
    return builder.trace()


@pytest.mark.parametrize("small", [little_disk, limited_file_size])
def test_full_disk(small: object, tmp_path: Path) -> None:
    """Whole or not at all: an older bundle is still there, and nothing lies beside it."""
    with small(tmp_path) as folder:  # type: ignore[operator]
        save_bundle(everything(), folder / "bundle")
        with pytest.raises(OutputError, match=r"bundle: cannot write the bundle \(.*(No space left|File too large)"):
            save_bundle(large(), folder / "bundle")
        assert len(load_bundle(folder / "bundle").ops) == len(everything().ops)
        assert [file.name for file in folder.iterdir()] == ["bundle"]


def test_the_older_bundle_survives_a_failed_exchange(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last step, putting the new bundle in its place, may fail too."""
    replace_path = Path.replace

    def refuse(self: Path, target: Path) -> Path:
        if Path(target) == bundle and not self.name.endswith("-old"):
            raise OSError(errno.EIO, "Input/output error")
        return replace_path(self, target)

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OutputError, match="Input/output error"):
        save_bundle(TraceBuilder().trace(), bundle)
    assert len(load_bundle(bundle).ops) == len(everything().ops)
    assert [file.name for file in bundle.parent.iterdir()] == ["bundle"]


# -- Invariants --------------------------------------------------------------------------------------------------------


def test_check_finds_what_is_wrong() -> None:
    trace = everything()
    backwards = trace.ops.columns() | {"end": trace.ops.start - 1}
    strange = trace.ops.columns() | {"name": np.full(len(trace.ops), 99)}
    for columns, message in ((backwards, "ends before it starts"), (strange, "a string that is not there")):
        with pytest.raises(ValueError, match=message):
            replace(trace, ops=type(trace.ops)(**columns)).check()
    early = trace.ranges.columns() | {"start": trace.ranges.start[::-1], "end": trace.ranges.end + 100}
    with pytest.raises(ValueError, match="a range starts before its parent"):
        replace(trace, ranges=type(trace.ranges)(**early)).check()


def test_columns_of_differing_length() -> None:
    columns = everything().ops.columns()
    with pytest.raises(ValueError, match="columns of Ops differ in length"):
        type(everything().ops)(**(columns | {"end": columns["end"][1:]}))
