"""The economics of the reference sweeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit import Recording, analyze
from profkit.analyzers.economics.result import Economics
from profkit.traces import StepTimes, UsageError, open_recordings
from tests.analyzers.test_sweeps import TRACES, analysed

PAIRS = ["tp1", "ep2"]


def pair(name: str) -> Economics:
    """The reference sweep ``name`` and the speculative one beside it, such as ``ep2`` and ``ep2-dflash``."""
    (found,) = analysed(name, name.replace("tp1", "tp1-dflash").replace("ep2", "ep2-dflash")).economics
    return found


@pytest.mark.parametrize("name", PAIRS)
def test_every_concurrency_has_its_row(name: str) -> None:
    found = pair(name)
    assert [row.batch_size for row in found.rows] == [1, 32, 128] and found.graphs
    for row in found.rows:
        assert row.break_even_ci95 is not None
        low, high = row.break_even_ci95
        assert low <= row.break_even <= high < 1.2 * low
        assert row.headroom == pytest.approx((row.speculative.accept_len or 0) - row.break_even)


@pytest.mark.parametrize("name", PAIRS)
def test_parts_sum_to_the_recorded_step(name: str) -> None:
    for row in pair(name).rows:
        for side in (row.plain, row.speculative):
            assert sum(part.ns for part in side.parts) == pytest.approx(side.recorded_ns, rel=0.03)


def test_where_one_gpu_stops_to_gain() -> None:
    """The measured throughputs meet where the steps say so."""
    found = pair("tp1").crossover
    assert found.estimate.at is not None and found.low.at is not None and found.high.at is not None
    ends = found.low.at, found.estimate.at, found.high.at
    assert ends == pytest.approx((31.16, 31.55, 31.94), abs=0.1)
    assert found.measured.at == pytest.approx(found.estimate.at, rel=0.05)


def test_prediction_against_measurement() -> None:
    """Within 10 % everywhere: throughput and steps of one GPU are of whole outputs, so of all contexts."""
    errors = [row.prediction_error or 0.0 for name in PAIRS for row in pair(name).rows]
    assert errors == pytest.approx([0.0194, -0.0045, -0.0540, -0.0637, -0.0321, -0.0941], abs=0.0001)
    assert all(abs(error) < 0.1 for error in errors)
    assert pair("ep2").prediction == (
        "The speed-up predicted from recorded steps is within 10 % of the measured one at 1, 32 and 128. At 1, 32 and "
        "128 throughput was counted once: how far the measured speed-up varies is not known."
    )
    assert pair("tp1").prediction == (
        "The speed-up predicted from steps timed without a recorder is within 6 % of the measured one at 1 (1.2 % off "
        "the nearest end of the measured range of 2.19 to 2.22), 32 (inside the measured range of 0.99 to 1.02) and "
        "128 (4.1 % off the nearest end of the measured range of 0.44 to 0.46)."
    )


def test_both_sides_of_one_gpu_were_timed_without_a_recorder() -> None:
    assert {row.basis for row in pair("tp1").rows} == {"unrecorded"}
    assert {row.basis for row in pair("ep2").rows} == {"recorded"}


def test_the_verdict_is_of_measured_throughput() -> None:
    assert [row.outcome for row in pair("tp1").rows] == ["wins", "even", "loses"]
    found = pair("ep2")
    assert [row.outcome for row in found.rows] == ["wins", "wins", "wins"] and found.decided_by == "measured"
    assert found.sentences[2].startswith("By measured throughput, at concurrency 128, where it is nearest to losing")


def test_what_throughput_implies_lies_outside_of_the_intervals() -> None:
    """What the steps of one recording differ by does not hold how far throughput lies off."""
    assert pair("ep2").intervals.endswith("throughput implies, at 128 (3.29).")


def test_both_counts_of_throughput_reach_the_verdict() -> None:
    """At 128, ``sweep.json`` has 5,343 tokens/s before the window and 5,357 after; plain 11,760 and 12,047."""
    row = pair("tp1").rows[2]
    rates = (row.plain, "tokens_per_s_before"), (row.plain, "tokens_per_s_after")
    assert [round(getattr(side, key)) for side, key in rates] == [11760, 12047]
    assert row.measured_range == pytest.approx((5343.0 / 12047.1, 5356.6 / 11759.8), abs=1e-4)
    assert [side.unrecorded_steps for side in (row.plain, row.speculative)] == [2008, 579]
    assert {row.measured_range for row in pair("ep2").rows} == {None}


def test_where_steps_and_throughput_disagree_the_first_sentence_says_so() -> None:
    assert (
        "128 (1.08×), by throughput measured without a recorder, though at 128 its steps alone say that it loses by "
        "2.4 %; predicted" in pair("ep2").sentences[0]
    )


def test_an_accept_length_above_the_block_is_refused() -> None:
    opened = open_recordings(TRACES / "tp1-dflash")[0]
    recordings = [Recording(opened.name, "", opened.trace)]
    said = r"accept length 8.01: a block of 8 gives no more than 8 tokens a step \(tp1-dflash/c1\); give"
    with pytest.raises(UsageError, match=said):
        analyze(recordings, accept_len=8.01)
    assert analyze(recordings, accept_len=8)[0].traces[0].cycle.accept_len == 8


def test_verify_grows_by_the_request() -> None:
    growth = {(one.decoding, one.phase, one.group): one for one in pair("tp1").growth}
    verify = growth["speculative", "verify", "kernels"]
    assert verify.r2 is not None and verify.r2 > 0.99
    assert verify.per_request_ns == pytest.approx(551_000, rel=0.05)


def test_unrecorded_steps_reach_the_verdict() -> None:
    """As newer captures have them: what the engine's host timed goes before the recorded steps."""
    timed = {
        "tp1/c1": StepTimes(5_000_000, 4_900_000, 5_100_000, 900),
        "tp1-dflash/c1": StepTimes(8_000_000, 7, 9, 600),
    }
    opened = [open_recordings(TRACES / name)[0] for name in timed]
    recordings = [
        Recording(
            name, "", one.trace.with_run(replace(one.trace.run, step_times=timed[name], config=name.split("/")[0]))
        )
        for name, one in zip(timed, opened, strict=True)
    ]
    (found,) = analyze(recordings, accept_len=3.2)[0].economics
    assert found.rows[0].basis == "unrecorded" and found.rows[0].break_even == pytest.approx(1.6)
    assert found.rows[0].predicted_speedup == pytest.approx(2.0)


def test_other_pairs_have_none() -> None:
    assert analysed("tp1").economics == () and analysed("tp1", "ep2-dflash").economics == ()


def test_captures_over_different_links_are_not_compared() -> None:
    """Plain steps of ep2 exchange through host memory: against cycles over NVLink, the link would seem to be DFlash."""
    found = analysed("ep2", "ep2-dflash-nvlink")
    assert found.comparisons == () and found.economics == ()


QWEN = ("tp1-qwen3-235b", "tp1-dflash-qwen3-235b")


def test_another_model_is_no_partner() -> None:
    """A configuration without weights keeps its name whatever shape it takes: here ``tp1`` is of another."""
    found = analysed("tp1", QWEN[1])
    assert (found.economics, found.comparisons, found.gains) == ((), (), ())
    (told,) = found.unpaired
    assert told.reasons == ("model",)
    assert told.why == "tp1 ran qwen3-8b, not qwen3-235b-a22b (12 layers)"


def test_models_beside_each_other_have_verdicts_of_their_own() -> None:
    """Predicted from steps within 3 % of what throughput says, for the larger model too."""
    found = analysed("tp1", "tp1-dflash", *QWEN)
    assert [(one.baseline, one.speculative) for one in found.economics] == [("tp1", "tp1-dflash"), QWEN]
    assert found.economics[0] == pair("tp1")
    rows = found.economics[1].rows
    assert [row.batch_size for row in rows] == [1, 32]
    assert [row.outcome for row in rows] == ["wins", "wins"]
    assert [row.prediction_error for row in rows] == pytest.approx([-0.0249, 0.0221], abs=0.0005)
    assert [gain.batch_sizes for gain in found.gains] == [(1, 32, 128), (1, 32)]
