"""How the load counts what comes back."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.capture.endpoints import Endpoints
from profkit.capture.load import Load, Slot
from profkit.capture.settings import LoadSettings


@given(st.floats(0.0, 1.0), st.floats(0.3, 1.2), st.integers(1, 500))
def test_the_rate_of_a_slot_does_not_depend_on_where_its_bursts_fall(phase: float, apart: float, burst: int) -> None:
    slot = Slot()
    for number in range(30):
        if number in (0, 3, 7):
            slot.begin()
            assert slot.rate() is None
        slot.count(phase * apart + number * apart, burst)
        if number in (2, 6, 29):
            assert slot.rate() == pytest.approx(burst / apart, rel=1e-9)
    assert slot.total == slot.received == 30 * burst
    slot.begin()
    slot.count(99.0, burst)
    assert slot.rate() is None


@pytest.mark.parametrize(("most_s", "enough"), [(20.0, True), (0.0, False)])
def test_measuring_goes_on_until_every_slot_has_brought_a_whole_output(most_s: float, enough: bool) -> None:
    load = Load(Endpoints("http://127.0.0.1:1"), 2, LoadSettings(output_len=100))
    slots = load._slots

    def tokens_come() -> None:
        for slot, tokens in zip(slots, (50, 15), strict=True):
            slot.count(time.monotonic(), tokens)

    load.measure(0.06, tokens_come, most_s)
    assert (slots[1].total >= 100) is enough
    assert slots[1].total < 200
