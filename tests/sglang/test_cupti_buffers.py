"""The pool of buffers behind CUPTI's two callbacks, and which library is asked."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from profkit.sglang import cupti_buffers
from profkit.sglang.cupti_buffers import ALIGNMENT, Buffers, library
from profkit.sglang.cupti_records import RUNTIME, records_of
from tests.sglang.fake_cupti import BY_KIND, Library, record

ROOM = 400


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """Buffers of ten API calls each, two of them prepared; the library that fills them."""
    monkeypatch.setattr(cupti_buffers, "SIZE", ROOM)
    monkeypatch.setattr(cupti_buffers, "PREPARED", 2)
    yield Library()


def calls(count: int, first: int = 1) -> list[bytes]:
    return [record(RUNTIME, start=number) for number in range(first, first + count)]


def starts(buffers: Buffers) -> list[int]:
    found: list[int] = records_of(buffers.filled(), BY_KIND)[RUNTIME]["start"].tolist()
    return found


def test_the_pool_grows_and_is_used_again(small: Library) -> None:
    buffers = Buffers()
    buffers.register(small)  # type: ignore[arg-type]
    small.deliver(calls(35))
    assert [len(one) for one in buffers.filled()] == [400, 400, 400, 200]
    assert starts(buffers) == [*range(1, 36)]
    first = {one.ctypes.data for one in buffers.filled()}
    buffers.clear()
    assert [*buffers.filled()] == []
    small.deliver(calls(40, first=100))
    assert starts(buffers) == [*range(100, 140)]
    assert {one.ctypes.data for one in buffers.filled()} == first, "the four buffers serve the next window"


def test_a_buffer_that_cupti_still_holds_is_kept(small: Library) -> None:
    buffers = Buffers()
    buffers.register(small)  # type: ignore[arg-type]
    place, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(1)
    requested, completed = small._callbacks
    requested(ctypes.byref(place), ctypes.byref(size), ctypes.byref(most))
    small.deliver(calls(1))
    buffers.clear()
    small.deliver(calls(15, first=2))
    assert place.value not in {one.ctypes.data for one in buffers.filled()}
    completed(None, 0, place, size, 0)
    assert starts(buffers) == [*range(2, 17)]


def test_buffers_begin_where_cupti_may_write(small: Library) -> None:
    for one in Buffers()._free:
        assert (one.ctypes.data % ALIGNMENT, len(one)) == (0, ROOM)


def test_a_library_that_refuses(small: Library) -> None:
    small.refuses = 38
    with pytest.raises(OSError, match="cuptiActivityRegisterCallbacks returned 38"):
        Buffers().register(small)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mapped", "asked"),
    [
        ("7f00-7f01 r-xp 0 0:0 1 /opt/a b/libcupti.so.13\n", "b/libcupti.so.13"),
        ("7f00-7f01 r-xp 0 0:0 1 /opt/libc.so\n7f02-7f03 r-xp 0 0:0 2 /opt/cuda/libcupti.so.13\n", "/opt/cuda/"),
        ("7f00-7f01 r-xp 0 0:0 1 /opt/libc.so\n7f02-7f03 rw-p 0 0:0 0\n\n", "libcupti.so"),
    ],
)
def test_the_library_that_the_process_has_loaded(
    mapped: str, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = tmp_path / "maps"
    maps.write_text(mapped)
    monkeypatch.setattr(cupti_buffers, "MAPPED", maps)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: name)
    assert asked in str(library())
