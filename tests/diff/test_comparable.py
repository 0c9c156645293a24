"""What makes a comparison doubtful, and what forbids it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.analyzers import attribute
from profkit.analyzers.diff import Context, Side, diff
from profkit.analyzers.diff.comparable import comparability, fingerprint
from profkit.traces import Note, Run, Source, StepTimes, Trace, UsageError
from tests.builders import TraceBuilder

from .pairs import Served, at_concurrency, side_of, trace_of, whole_diff


@pytest.fixture(scope="module")
def a() -> Trace:
    return at_concurrency(trace_of(Served(seed=1, layers=2), 8), 1, 3.5, "NVIDIA H200")


@pytest.fixture(scope="module")
def b() -> Trace:
    return at_concurrency(trace_of(Served(seed=2, layers=2), 8), 1, 3.5, "NVIDIA H200")


def reasons(a: Trace, b: Trace, of_a: Context | None = None, of_b: Context | None = None) -> tuple[str, ...]:
    return comparability(side_of(a, "a", of_a), side_of(b, "b", of_b), "step").reasons


def test_two_like_recordings(a: Trace, b: Trace) -> None:
    found = comparability(side_of(a), side_of(b), "step")
    assert (found.status, found.reasons, found.identical) == ("ok", (), False)


def test_what_is_known_and_differs(a: Trace, b: Trace) -> None:
    other = at_concurrency(b, 1, 2.5, "NVIDIA H100").with_run(Run(accept_len=2.5, engine="SGLang 0.6", model="M2"))
    known = replace(a, source=Source("nsys", "Nsight Systems", "2025.3", driver="580.1"))
    known = known.with_run(replace(a.run, engine="SGLang 0.5.17", model="M"))
    other = replace(other, source=Source("kineto", "PyTorch profiler", "2.11", driver="570.2"))
    assert reasons(known, other) == (
        "model: M in A, M2 in B",
        "GPU: NVIDIA H200 in A, NVIDIA H100 in B",
        "driver: 580.1 in A, 570.2 in B",
        "engine: SGLang 0.5.17 in A, SGLang 0.6 in B",
        "accept length: 3.5 in A, 2.5 in B",
        "steps yield 3.5 and 2.5 tokens: compare with --per token",
        "recorder: Nsight Systems 2025.3 in A, PyTorch profiler 2.11 in B",
    )


def test_what_a_sweep_says(a: Trace, b: Trace) -> None:
    one = Context({"attention_backend": "triton", "prompt_len": "128"}, {"torch": "2.11"}, 1.02)
    two = Context({"attention_backend": "fa3", "prompt_len": "1024"}, {"torch": "2.12"}, 1.31)
    assert reasons(a, b, one, two) == (
        "version of torch: 2.11 in A, 2.12 in B",
        "attention_backend: triton in A, fa3 in B",
        "prompt_len: 128 in A, 1024 in B",
        "the recorder slowed B by 31 %",
    )


@pytest.mark.parametrize(
    ("slowdowns", "said"),
    [
        ((0.82, 1.04), None),
        ((0.8, 1.1), None),
        ((1.16, None), "the recorder slowed A by 16 %"),
        ((1.25, 1.25), "the recorder slowed A by 25 % and B by 25 %"),
        ((None, None), None),
    ],
)
def test_a_recorder_that_slowed_its_run(
    a: Trace, b: Trace, slowdowns: tuple[float | None, float | None], said: str | None
) -> None:
    """Rates measured without it also hold the prefill of later requests, so less than a tenth says nothing."""
    assert reasons(a, b, *(Context(slowdown=slowdown) for slowdown in slowdowns)) == ((said,) if said else ())


def test_versions_are_compared_like_with_like(a: Trace, b: Trace) -> None:
    """A PyTorch trace names CUDA's version where Nsight Systems names the driver's; local versions are builds."""
    first = replace(a, source=Source("nsys", driver="580.159.04")).with_run(replace(a.run, engine="sglang 0.5.17"))
    second = replace(b, source=Source("nsys", driver="CUDA 13.0")).with_run(replace(b.run, engine="SGLang 0.5.17"))
    of_a = Context(versions={"torch": "2.11.0+cu130", "cuda": "13.0", "driver": "580.159.04", "triton": "3.6"})
    assert reasons(first, second, of_a, Context(versions={"torch": "2.11.0", "triton": "3.6"})) == ()
    found = reasons(first, second, replace(of_a, versions={"cuda": "12.8"}), Context(versions={"driver": "570.1"}))
    assert found == ("driver: 580.159.04 in A, 570.1 in B", "CUDA version: 12.8 in A, 13.0 in B")
    assert reasons(a, b, Context(versions={"torch": "2.11.0+cu130"}), Context(versions={"torch": "2.12.0"})) == (
        "version of torch: 2.11.0 in A, 2.12.0 in B",
    )


def test_what_one_side_does_not_say(a: Trace, b: Trace) -> None:
    """One line for all of it; other settings that are missing are said to be not set."""
    known = Context({"attention_backend": "triton", "prompt_len": "128", "page_size": "1"})
    silent = b.with_run(replace(b.run, accept_len=None))
    assert reasons(a, silent, known) == ("not recorded: attention backend, prompt length and accept length of B",)
    assert reasons(a, silent, Context({"prompt_len": "128"}), Context({"attention_backend": "triton"})) == (
        "not recorded: attention backend of A; prompt length and accept length of B",
    )
    assert reasons(a, b, known, Context({"prompt_len": "128", "page_size": "1"})) == (
        "not recorded: attention backend of B",
    )
    assert "page_size: 1 in A, not set in B" in reasons(a, b, known, Context({"prompt_len": "128"}))


def test_what_the_recording_of_one_side_does_not_say(a: Trace, b: Trace) -> None:
    """GPU, driver and versions: a driver's version stands for CUDA's, as recorders give one or the other."""
    unnamed = replace(b, devices=tuple(replace(device, name="") for device in b.devices))
    versions = {"torch": "2.11", "triton": "3.6", "driver": "580.1"}
    assert reasons(a, unnamed, Context(versions=versions)) == ("not recorded: GPU, driver and versions of B",)
    assert reasons(a, b, Context(versions=versions), Context(versions={"torch": "2.11", "cuda": "13.0"})) == (
        "not recorded: version of triton of B",
    )
    many = {"torch": "2.11", "x": "1", "y": "1", "z": "1"}
    assert reasons(a, b, Context(versions=many), Context(versions={"torch": "2.11"})) == (
        "not recorded: 3 versions of B",
    )


def test_contexts_are_compared_by_request(a: Trace, b: Trace) -> None:
    def at(trace: Trace, tokens: int | None, requests: int) -> Trace:
        within = StepTimes(10, 9, 11, 20, tokens)
        return trace.with_run(replace(trace.run, concurrency=requests, step_times_recorded=within))

    said = "context: 600 tokens a request in A, 640 in B (attention takes longer the longer contexts are)"
    assert said in reasons(at(a, 600, 1), at(b, 20_480, 32))
    for like in (at(b, 19_900, 32), at(b, None, 1), b):
        assert not any(reason.startswith("context") for reason in reasons(at(a, 600, 1), like))


def test_two_different_ranks(a: Trace) -> None:
    """A recording of one rank is not the same work as one of another."""
    first, other = (replace(trace_of(Served(seed=n, layers=2), 8, ranks=1)) for n in (1, 2))
    other = replace(other, processes=tuple(replace(process, rank=3) for process in other.processes))
    first = replace(first, processes=tuple(replace(process, rank=0) for process in first.processes))
    assert reasons(first, other) == ("A holds rank 0, B rank 3: no rank is in both",)
    assert not any("no rank" in reason for reason in reasons(a, first))


@pytest.mark.parametrize("lengths", [(3.5, None), (None, 3.5), (None, None), (3.5, 3.5)])
def test_the_same_recording_is_recognised_with_one_accept_length(
    a: Trace, lengths: tuple[float | None, float | None]
) -> None:
    sides = [side_of(at_concurrency(a, 1, length)) for length in lengths]
    assert comparability(*sides, "step").status == "same"
    assert comparability(*sides, "token").status == ("no" if None in lengths else "same")


def test_one_step_is_one_step(a: Trace) -> None:
    short = at_concurrency(trace_of(Served(seed=3, layers=2), 1), 1, 3.5, "NVIDIA H200")
    assert "only 1 step in A: noise is unknown, so no change is called significant" in reasons(short, a)


def test_batch_ranks_graphs_and_kind(a: Trace) -> None:
    other = trace_of(Served(seed=2, layers=2, batch=32, eager=True, drafts=False), 8, ranks=1)
    found = reasons(a, at_concurrency(other, 32))
    for text in ("number of ranks: 2 in A, 1 in B", "graph mode: CUDA graphs in A, eager launches in B",
                 "batch size: 1 in A, 32 in B", "decoding: speculative in A, plain in B",
                 "steps yield 3.5 and 32 tokens: compare with --per token"):  # fmt: skip
        assert text in found


def test_doubts_of_one_side(a: Trace, b: Trace) -> None:
    short = at_concurrency(trace_of(Served(seed=3, layers=2), 3), 1, 3.5)
    assert "only 3 steps in B: noise is unknown, so no change is called significant" in reasons(a, short)
    lost = replace(b, notes=(Note("dropped_records", "1204 kernels"),))
    assert reasons(a, lost) == ("dropped records in B: 1204 kernels",)


def test_few_steps_give_no_intervals(a: Trace) -> None:
    short = at_concurrency(trace_of(Served(seed=3, layers=2, gemm=90_000), 3), 1, 3.5)
    pair = whole_diff([a], [short]).pairs[0]
    assert pair.total is not None and pair.total.ci95_ns is None and not pair.total.significant
    assert {row.state for row in pair.kernels} == {"unknown"}
    assert "too few steps" in pair.summary


def no_steps() -> Trace:
    builder = TraceBuilder().rank(0)
    for start in range(0, 100, 10):
        builder.launch(start, start + 1, "gemm", start + 3, start + 8)
    return builder.trace()


def test_steps_on_one_side_only(a: Trace) -> None:
    found = comparability(side_of(a), side_of(no_steps()), "step")
    assert found.status == "no" and "B has no decode steps" in found.reasons[0]
    pair = whole_diff([a], [no_steps()]).pairs[0]
    assert pair.total is None and pair.summary.startswith("No comparison: B has no decode steps")


def test_no_activity(a: Trace) -> None:
    silent = TraceBuilder().rank(0).call(0, 5, "cudaLaunchKernel").trace()
    found = comparability(side_of(silent), side_of(a), "step")
    assert found.status == "no" and found.reasons[0] == "A holds no GPU activity"
    assert whole_diff([silent], [silent]).comparable.status == "no"


def test_graphs_recorded_whole(a: Trace) -> None:
    builder = TraceBuilder().rank(0)
    for start in range(0, 100, 10):
        builder.range(start, start + 9, "step:decode bs=1").launch(
            start, start + 1, "whole_graph", start + 3, start + 8
        )
    found = comparability(side_of(a), side_of(builder.trace()), "step")
    assert found.status == "no" and "--cuda-graph-trace=node" in found.reasons[0]


def test_lost_steps(a: Trace) -> None:
    builder = TraceBuilder().rank(0)
    for start in range(0, 100, 10):
        builder.range(start, start + 9, "step:decode bs=1").call(start, start + 1, "cudaLaunchKernel")
        if start != 50:
            builder.op("gemm", start + 3, start + 8)
    found = comparability(side_of(a), side_of(builder.trace()), "step")
    assert found.status == "no" and found.reasons[0] == "B lost the GPU records of whole decode steps: record it again"


def test_tokens_unknown(a: Trace) -> None:
    unknown = at_concurrency(trace_of(Served(seed=3, layers=2), 8), 1, gpu="NVIDIA H200")
    found = comparability(side_of(a), side_of(unknown), "token")
    assert found.status == "no" and "--accept-len" in found.reasons[0]
    given = Side.of("x", "x", attribute(unknown), Context(), accept_len=3.5)
    assert comparability(side_of(a), given, "token").status == "ok"


def test_whole_recordings() -> None:
    pair = whole_diff([no_steps()], [no_steps()]).pairs[0]
    assert pair.window == "recording" and pair.comparable.identical
    builder = TraceBuilder().rank(0)
    for start in range(0, 80, 10):
        builder.launch(start, start + 1, "gemm", start + 3, start + 10)
    pair = whole_diff([no_steps()], [builder.trace()]).pairs[0]
    assert sum("decode steps" in reason for reason in pair.comparable.reasons) == 1
    assert "decode steps" not in pair.summary
    assert "the second is 18 ns shorter (95 ns and 77 ns), although its GPU activities sum to 6 ns more" in pair.summary
    assert not any(row.significant for row in pair.parts)
    (gemm,) = pair.kernels
    assert (gemm.state, gemm.a_count, gemm.b_count) == ("unknown", 10, 8)
    assert (gemm.a_call_ns, gemm.b_call_ns) == (5, 7)


def test_fingerprint_does_not_depend_on_strings_or_clock(a: Trace, b: Trace) -> None:
    assert fingerprint(a) != fingerprint(b)
    shifted = replace(a, ops=type(a.ops)(**(a.ops.columns() | {"start": a.ops.start + 5, "end": a.ops.end + 5})))
    more = ("never used", *shifted.strings)
    renamed = replace(shifted, strings=more, ops=type(a.ops)(**(shifted.ops.columns() | {"name": a.ops.name + 1})))
    assert fingerprint(renamed) == fingerprint(a)


def test_sweeps_are_paired_by_concurrency() -> None:
    made = {n: trace_of(Served(seed=n, layers=1), 5, ranks=1) for n in (1, 32, 64, 128)}
    first = [at_concurrency(made[n], n) for n in (1, 32, 64)]
    second = [at_concurrency(made[n], n) for n in (128, 64, 32)]
    found = whole_diff(first, second)
    assert [(pair.sides[0].concurrency, pair.sides[1].concurrency) for pair in found.pairs] == [(32, 32), (64, 64)]
    assert found.unpaired == ("a0", "b0") and found.total == found.pairs[0].total
    assert found.pairs[0].comparable.identical


def test_single_recordings_are_a_pair_whatever_their_concurrency() -> None:
    made = [at_concurrency(trace_of(Served(seed=n, batch=n, layers=1), 6, ranks=1), n, 3.0) for n in (32, 128)]
    pair = whole_diff(made[:1], made[1:], "token").pairs[0]
    assert "batch size: 32 in A, 128 in B" in pair.comparable.reasons
    assert pair.total is not None and pair.total.a_ns > 3.5 * pair.total.b_ns
    assert "steps yield 96 and 384 tokens" in pair.summary


def test_nothing_to_pair() -> None:
    made = [at_concurrency(trace_of(Served(seed=n, layers=1), 5, ranks=1), n) for n in (1, 2, 3)]
    with pytest.raises(UsageError, match="no concurrency is in both"):
        diff([side_of(made[0])], [side_of(made[1]), side_of(made[2])])


def test_a_long_step_and_prefills_are_named() -> None:
    """They make the change of the mean one that cannot be told from noise, though they are none."""
    far = uneven(long_step=80_000_000)
    assert reasons(uneven(), far) == (
        "1 of 12 steps takes 80.2 ms (step 5, counted from 0), the median step 150 µs, in B: figures are means, which "
        "hold them",
    )
    assert reasons(uneven(prefill=600_000), uneven()) == (
        "prefills take 25 % of the time in A: figures are means over it",
    )


def uneven(long_step: int = 0, prefill: int = 0) -> Trace:
    """Steps of 150 us, before one of which the host is late, or a prefill runs."""
    builder, time = TraceBuilder().rank(0), 0
    for step in range(12):
        if step == 6 and prefill:
            builder.range(time, time + 10, "step:prefill bs=1")
            builder.launch(time + 1, time + 2, "gemm", time + 3, time + prefill)
            time += prefill
        time += long_step if step == 6 else 0
        builder.range(time, time + 50_000, "step:decode bs=1")
        builder.launch(time + 1, time + 9, "gemm", time + 10, time + 150_000)
        time += 150_000
    return builder.trace()
