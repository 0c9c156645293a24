"""Reading of plain and compressed files, whole and damaged."""

from __future__ import annotations

import errno
import gzip
import lzma
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest

from profkit.traces import InputError
from profkit.traces.compression import decompressed, read_bytes, read_content, read_head

DATA = os.urandom(300_000) + b"the end"


def _zstd(data: bytes) -> bytes:
    return bytes(pyarrow.compress(data, codec="zstd", asbytes=True))


FORMATS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes, "gzip": gzip.compress, "xz": lzma.compress, "zstd": _zstd,
}  # fmt: skip
COMPRESSED = [name for name in FORMATS if name != "plain"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go, to see that none stays."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path


@pytest.mark.parametrize("name", FORMATS)
def test_content_decides_and_not_the_name(folder: Path, name: str) -> None:
    path = folder / "trace.txt"
    path.write_bytes(FORMATS[name](DATA))
    assert read_bytes(path) == DATA
    assert read_content(path).truncated is False
    assert read_head(path, 10) == DATA[:10]
    with decompressed(path) as plain:
        assert plain.read_bytes() == DATA
        assert (plain == path) is (name == "plain")
    assert list((folder / "tmp").iterdir()) == []


@pytest.mark.parametrize("name", COMPRESSED)
def test_streams_one_after_the_other(folder: Path, name: str) -> None:
    path = folder / "trace"
    path.write_bytes(FORMATS[name](DATA) + FORMATS[name](b"more"))
    assert read_bytes(path) == DATA + b"more"


@pytest.mark.parametrize("behind", [b"\0" * 512, b"junk"])
def test_what_stands_behind_a_whole_gzip_stream_is_ignored(folder: Path, behind: bytes) -> None:
    path = folder / "trace"
    path.write_bytes(gzip.compress(DATA) + behind)
    content = read_content(path)
    assert (content.data, content.truncated) == (DATA, False)


@pytest.mark.parametrize("name", COMPRESSED)
def test_cut_stream_gives_its_beginning(folder: Path, name: str) -> None:
    path = folder / "trace"
    path.write_bytes(FORMATS[name](DATA)[:200_000])
    content = read_content(path)
    assert content.truncated
    assert len(content.data) > 100_000 and DATA.startswith(content.data)
    with pytest.raises(InputError, match="cut off or damaged"), decompressed(path):
        pass
    assert list((folder / "tmp").iterdir()) == []


@pytest.mark.parametrize("name", COMPRESSED)
def test_stream_of_which_nothing_is_left(folder: Path, name: str) -> None:
    path = folder / "trace"
    path.write_bytes(FORMATS[name](DATA)[:7])
    with pytest.raises(InputError, match="cut off or damaged; copy or record it again"):
        read_bytes(path)
    assert read_head(path) == b""


@pytest.mark.parametrize("read", [read_bytes, read_head])
def test_files_that_cannot_be_opened(folder: Path, read: Callable[[Path], bytes]) -> None:
    with pytest.raises(InputError, match="no such file"):
        read(folder / "missing")
    with pytest.raises(InputError, match="is a folder"):
        read(folder)


def test_permission_denied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match="may not be read; change its permissions"):
        read_bytes(folder / "trace")


def test_disk_full_while_decompressing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "trace.xz"
    path.write_bytes(lzma.compress(DATA))
    real = Path.open

    def full(self: Path, mode: str = "r") -> object:
        if mode == "wb":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, mode)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(InputError, match="No space left on device; free space there"), decompressed(path):
        pass
    assert list((folder / "tmp").iterdir()) == []


def test_an_error_of_the_user_of_the_file_stays_as_it_is(folder: Path) -> None:
    path = folder / "trace.gz"
    path.write_bytes(gzip.compress(DATA))
    with pytest.raises(OSError, match="mine"), decompressed(path):
        raise OSError("mine")
    assert list((folder / "tmp").iterdir()) == []
