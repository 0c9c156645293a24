"""Files that may be compressed: plain, gzip, xz or zstd, told apart by their first bytes and not by name."""

from __future__ import annotations

import errno
import lzma
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from .errors import InputError

_GZIP, _XZ, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Content:
    """The decompressed bytes of a file; ``truncated`` where its compressed stream is cut off or damaged."""

    data: bytes
    truncated: bool


def read_content(path: Path) -> Content:
    """All of ``path``, decompressed; of a damaged stream, what comes before the damage.

    Raises ``InputError`` where the file cannot be read, or nothing of it can be decompressed.
    """
    parts: list[bytes] = []
    try:
        for chunk in _chunks(path):
            parts.append(chunk)
    except _DamagedError:
        if not any(parts):
            raise _damaged(path) from None
        return Content(b"".join(parts), truncated=True)
    return Content(b"".join(parts), truncated=False)


def read_bytes(path: Path) -> bytes:
    """All of ``path``, decompressed; see ``read_content``."""
    return read_content(path).data


def read_head(path: Path, size: int = 4096) -> bytes:
    """The first ``size`` decompressed bytes, to tell the format by; fewer where the file is short or damaged."""
    head = b""
    try:
        for chunk in _chunks(path):
            head += chunk
            if len(head) >= size:
                break
    except _DamagedError:
        pass
    return head[:size]


@contextmanager
def decompressed(path: Path) -> Iterator[Path]:
    """A plain file with the content of ``path``: itself, or a temporary file that is removed afterwards.

    Raises ``InputError`` where the stream is damaged or the disk is full: half a database helps nobody.
    """
    if not _magic(path):
        yield path
        return
    with _temporary_folder(path) as folder:
        plain = Path(folder) / path.stem
        _write_plain(path, plain)
        yield plain


class _DamagedError(Exception):
    """The compressed stream ends early or makes no sense."""


def _damaged(path: Path) -> InputError:
    return InputError(path, "the compressed file is cut off or damaged", "copy or record it again")


def _temporary_folder(path: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="profkit-", ignore_cleanup_errors=True)
    except OSError as error:
        fault = f"there is no folder to decompress it into: {error.strerror or error}"
        raise InputError(path, fault, "name one in TMPDIR") from error


def _write_plain(path: Path, plain: Path) -> None:
    try:
        with plain.open("wb") as out:
            for chunk in _chunks(path):
                out.write(chunk)
    except _DamagedError:
        raise _damaged(path) from None
    except OSError as error:
        fault = f"it could not be decompressed into {plain.parent}: {error.strerror or error}"
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free space there, or name another folder in TMPDIR" if full else "name another folder in TMPDIR"
        raise InputError(path, fault, advice) from error


def _open(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise InputError(path, "no such file", "check the path") from None
    except IsADirectoryError:
        raise InputError(path, "is a folder where a file is needed", "name the file in it") from None
    except PermissionError:
        raise InputError(path, "may not be read", "change its permissions") from None
    except OSError as error:
        raise InputError(path, f"cannot be opened: {error.strerror or error}", "check the path") from error


def _magic(path: Path) -> bytes:
    """The magic bytes that ``path`` begins with, or nothing where it is not compressed."""
    with _open(path) as file:
        head = _read(file, path, 6)
    return next((magic for magic in (_GZIP, _XZ, _ZSTD) if head.startswith(magic)), b"")


def _read(file: IO[bytes], path: Path, size: int) -> bytes:
    try:
        return file.read(size)
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror or error}", "copy it to a sound disk") from error


def _chunks(path: Path) -> Iterator[bytes]:
    """The decompressed content, piece by piece; raises ``_DamagedError`` where the stream ends early."""
    magic = _magic(path)
    with _open(path) as file:
        raw = iter(lambda: _read(file, path, _CHUNK), b"")
        if magic == _ZSTD:
            yield from _zstd(file)
        elif magic:
            yield from _members(raw, _gzip if magic == _GZIP else lzma.LZMADecompressor)
        else:
            yield from raw


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def _gzip() -> _Decompressor:
    return zlib.decompressobj(wbits=31)


def _members(raw: Iterator[bytes], new: Callable[[], _Decompressor]) -> Iterator[bytes]:
    """Streams written one after the other count as one; padding and junk behind a whole stream are ignored."""
    stream, whole = new(), False
    for data in raw:
        while data:
            try:
                plain = stream.decompress(data)
            except (zlib.error, lzma.LZMAError) as error:
                if whole:
                    return
                raise _DamagedError from error
            yield plain
            data = b""
            if stream.eof:
                data = stream.unused_data.lstrip(b"\0")
                stream, whole = new(), True
            elif plain:
                whole = False
    if not whole:
        raise _DamagedError


def _zstd(file: IO[bytes]) -> Iterator[bytes]:
    import pyarrow  # 0.1 s that only a zstd file has to pay

    try:
        with pyarrow.input_stream(file, compression="zstd") as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise _DamagedError from error
