"""How the load counts what comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.capture.load import Slot


@given(st.floats(0.0, 1.0), st.floats(0.3, 1.2), st.integers(1, 500))
def test_the_rate_of_a_slot_does_not_depend_on_where_its_bursts_fall(phase: float, apart: float, burst: int) -> None:
    slot = Slot()
    for number in range(30):
        slot.count(phase * apart + number * apart, burst)
    for since in (0.0, 3.3, 7.0):
        assert slot.rate(since) == pytest.approx(burst / apart, rel=1e-9)
    assert slot.rate((phase + 28.5) * apart) is None
    assert slot.total == slot.received == 30 * burst
