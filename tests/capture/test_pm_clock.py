"""How far a GPU's clock is off, from when its sampler was started and stopped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.capture.pm_clock import Bracket, ClockOffset, clock_offset, in_words

US, MS, S = 1_000, 1_000_000, 1_000_000_000
INTERVAL = 50 * US

BRACKET = Bracket(start_called=0, start_returned=10 * MS, stop_called=100 * MS, stop_returned=102 * MS)
"""A start of 10 ms, a stop of 2 ms."""


def ends(first: int, last: int) -> np.ndarray:
    return np.arange(first, last + 1, INTERVAL)


def test_a_clock_that_can_be_utc_is_left_alone() -> None:
    """First sample: 5 ms are 10.1 ms less to 5 ms more than it may be; last: 101 is 1.05 ms less to 1.1 ms more."""
    offset = clock_offset(ends(5 * MS, 101 * MS), INTERVAL, BRACKET)
    assert offset == ClockOffset(-1_050 * US, 1_100 * US)
    assert offset.shift_ns == 0


def test_a_clock_that_is_ahead_is_known_as_exactly_as_the_shorter_call() -> None:
    """A minute ahead: by the stop -1.05 to +1.1 ms, which lies within what the start allows."""
    offset = clock_offset(ends(60 * S + 5 * MS, 60 * S + 101 * MS), INTERVAL, BRACKET)
    assert offset == ClockOffset(60 * S - 1_050 * US, 60 * S + 1_100 * US)
    assert (offset.shift_ns, offset.error_ns) == (60 * S + 25 * US, 1_075 * US)
    assert in_words(2, offset) == (
        "the clock of GPU 2's counters is 60.000 s ahead of UTC: the samples are moved by that, which is known to "
        "± 1.1 ms"
    )


def test_both_calls_bound_it() -> None:
    """The first sample as the start is called, the last one as the stop returns: only 50 us are left."""
    offset = clock_offset(ends(-S, -S + 102 * MS), INTERVAL, BRACKET)
    assert offset == ClockOffset(-S - 50 * US, -S)
    assert (offset.shift_ns, offset.error_ns) == (-S - 25 * US, 25 * US)


def test_a_clock_that_drifts_is_set_by_the_stop() -> None:
    """The samples span 200 ms where 92 to 102 ms passed."""
    offset = clock_offset(ends(S, S + 200 * MS), INTERVAL, BRACKET)
    assert offset == ClockOffset(S + 97_950 * US, S + 100_100 * US, by_stop_alone=True)
    assert "1.099 s ahead of UTC, by the end of sampling alone, since its begin does not fit:" in in_words(0, offset)


@pytest.mark.parametrize(("first", "last"), [(5 * MS, 60 * MS), (40 * MS, 101 * MS)])
def test_lost_samples_do_not_move_a_clock_that_is_right(first: int, last: int) -> None:
    """Of a buffer that was full, the end is missing; of samples lost at first, the begin."""
    offset = clock_offset(ends(first, last), INTERVAL, BRACKET)
    assert offset is not None and offset.shift_ns == 0


def test_without_samples_nothing_is_known() -> None:
    assert clock_offset(np.zeros(0, np.int64), INTERVAL, BRACKET) is None


@given(
    st.integers(-(10**18), 10**18),
    st.integers(0, 3 * S),
    st.integers(3 * S, 5 * S),
    st.integers(0, 20 * MS),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_the_true_offset_is_always_within(
    ahead: int, starting: int, stop: int, stopping: int, began: float, ended: float
) -> None:
    """Whenever sampling begins and ends within the calls; and the shift is off by no more than is said."""
    bracket = Bracket(0, starting, stop, stop + stopping)
    first = round(began * starting) + INTERVAL
    last = stop + round(ended * stopping)
    times = ends(first, last)[np.r_[0:2, -2:0]] + ahead
    offset = clock_offset(times, INTERVAL, bracket)
    assert offset is not None and offset.holds(ahead) and not offset.by_stop_alone
    assert abs(ahead - offset.shift_ns) <= (offset.error_ns + 1 if offset.shift_ns else 2 * offset.error_ns)
