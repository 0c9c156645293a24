"""What kernels have in common across builds, sequences brought together, counts, and ranges in flame graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.analyzers.diff.flame import ONLY, DiffFlame, diff_flame
from profkit.analyzers.diff.kernel_figures import KernelFigures
from profkit.analyzers.diff.result import KernelChange
from profkit.analyzers.kernel_keys import kernel_key, range_key
from profkit.analyzers.sequences import MOST_BITS, align
from profkit.traces import F64
from tests.builders import TraceBuilder
from tests.resources import calls_of

from .pairs import Served, at_concurrency, compared, side_of, trace_of

words = st.lists(st.sampled_from("abcd"), max_size=14)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", "nvjet_sm100_tst_192x8_64x8_2x1_h_bz_splitK_TNN"),
        (
            "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64>, false>(flash::Flash_fwd_params)",
            "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 32>, true>(flash::Flash_fwd_params)",
        ),
        (
            "ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x6_tn",
            "sm80_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x4_nn",
        ),
        ("triton_poi_fused_add_mul_3", "triton_poi_fused_add_mul_12"),
        ("fused_moe_kernel", "fused_moe_kernel_v2"),
    ],
)
def test_builds_of_one_kernel(a: str, b: str) -> None:
    assert kernel_key(a) == kernel_key(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("_fwd_grouped_kernel_stage1", "_fwd_grouped_kernel_stage2"),
        ("nvjet_tst_64x8_bf16_TNT", "nvjet_tst_64x8_fp8_TNT"),
        ("memcpy HtoD", "memcpy DtoH"),
        ("FusedAddRMSNormKernel", "RMSNormKernel"),
        ("elementwise_kernel", "12345"),
    ],
)
def test_different_kernels(a: str, b: str) -> None:
    assert kernel_key(a) != kernel_key(b)


def longest_common(a: list[str], b: list[str]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@settings(max_examples=300, deadline=None)
@given(words, words)
def test_alignment_is_a_longest_common_subsequence(a: list[str], b: list[str]) -> None:
    pairs = align(a, b)
    assert [i for i, _ in pairs if i is not None] == list(range(len(a)))
    assert [j for _, j in pairs if j is not None] == list(range(len(b)))
    matches = [(i, j) for i, j in pairs if i is not None and j is not None]
    assert all(a[i] == b[j] for i, j in matches)
    assert len(matches) == longest_common(a, b)


def test_a_step_of_1200_kernels_is_aligned_at_once() -> None:
    layer = [f"kernel {n % 17}" for n in range(25)]
    a = layer * 48
    b = [name if n % 25 != 7 else "another" for n, name in enumerate(a) if n % 31]
    pairs = align(a, b)
    assert calls_of(lambda: align(a, b)) < 5 * len(a)
    assert sum(None not in pair for pair in pairs) == len(b) - b.count("another")


def test_endless_sequences_are_paired_by_order() -> None:
    count = int(MOST_BITS**0.5) + 1
    a, b = ["x"] * count, ["x"] * (count - 2) + ["y"] * 5
    pairs = align(a, b)
    assert pairs[0] == (0, 0) and pairs.count((count - 1, None)) == 1
    assert len([j for i, j in pairs if i is None]) == 5


# -- counts and the time of one call -----------------------------------------------------------------------------------


def steps_of(count: int, call: float, seed: int) -> tuple[F64, F64]:
    """Ten steps with ``count`` calls of a kernel, each of ``call`` nanoseconds give or take 1 %: times and counts."""
    times = np.random.default_rng(seed).normal(call, call * 0.01, (10, count)).sum(axis=1, keepdims=True)
    return times, np.full((10, 1), float(count))


@pytest.mark.parametrize(
    ("a", "b", "state"),
    [
        ((12, 5_000), (12, 5_600), "slower"),
        ((12, 5_000), (12, 4_400), "faster"),
        ((12, 5_000), (18, 5_000), "more often"),
        ((12, 5_000), (6, 5_000), "less often"),
        ((12, 5_000), (4, 6_000), "less often"),
        ((12, 5_000), (36, 4_500), "more often"),
        ((12, 5_000), (18, 5_600), "slower"),
        ((12, 5_000), (6, 4_000), "faster"),
        ((12, 5_000), (10, 7_000), "slower"),
        ((12, 5_000), (12, 5_000), "same"),
    ],
)
def test_what_changed_of_a_kernel(a: tuple[int, float], b: tuple[int, float], state: str) -> None:
    """Numbers of calls and nanoseconds of one, in A and in B."""
    both = steps_of(*a, seed=1), steps_of(*b, seed=2)
    figures = KernelFigures.of((both[0][0], both[1][0]), (both[0][1], both[1][1]), (1.0, 1.0))
    assert figures.state(0) == state
    assert figures.call[0][0] == pytest.approx(a[1], rel=0.01) and figures.call[1][0] == pytest.approx(b[1], rel=0.01)


def test_a_few_steps_do_not_say_what_changed_of_a_kernel() -> None:
    (times, counts), (others, _) = steps_of(12, 5_000, 1), steps_of(12, 9_000, 2)
    assert KernelFigures.of((times[:3], others[:3]), (counts[:3], counts[:3]), (1.0, 1.0)).state(0) == "unknown"


def gemm_of(a: Served, b: Served, tokens: tuple[float, float]) -> KernelChange:
    """The target's gemm per token."""
    traces = [at_concurrency(trace_of(plan, 10), 1, each) for plan, each in zip((a, b), tokens, strict=True)]
    rows = compared(traces[0], traces[1], "token").kernels
    return next(row for row in rows if (row.phase, row.kernel_class) == ("verify", "gemm"))


def test_slower_calls_that_are_fewer_per_token_are_not_called_faster() -> None:
    row = gemm_of(Served(seed=1), Served(seed=2, gemm=33_000), (1.0, 3.0))
    assert row.state == "less often" and row.significant and row.delta_ns < 0
    assert (row.a_count, row.b_count) == (6, 2)
    assert row.a_call_ns == pytest.approx(30_000, rel=0.02) and row.b_call_ns == pytest.approx(33_000, rel=0.02)
    assert row.a_ns == pytest.approx(6 * (row.a_call_ns or 0), abs=4)
    assert gemm_of(Served(seed=1), Served(seed=2), (3.0, 1.0)).state == "more often"
    assert gemm_of(Served(seed=1), Served(seed=2, gemm=20_000), (1.0, 3.0)).state == "faster"


def test_calls_of_kernels_of_one_side() -> None:
    pair = compared(trace_of(Served(seed=1), 8), trace_of(Served(seed=2, inserted=("rope_kernel", 9_000)), 8))
    (row,) = [row for row in pair.kernels if row.state == "new"]
    assert row.a_call_ns is None and row.b_call_ns == row.b_ns


# -- ranges in flame graphs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("aten::mm, seq = 7", "aten::mm"),
        ("aten::mm, op_id = 33", "aten::mm"),
        ("aten::mm, seq = 7, op_id = 33, sizes = [[8, 8], []], input_op_ids = [(1,0), (2,0)]", "aten::mm"),
        ("aten::cat, sizes = [[[1], [2]], 3]", "aten::cat"),
        (
            "autograd::engine::evaluate_function: MmBackward0, seq = 5",
            "autograd::engine::evaluate_function: MmBackward0",
        ),
        ("ProfilerStep#123", "ProfilerStep"),
        ("iteration 12", "iteration"),
        ("forward(a, b)", "forward(a, b)"),
        ("layers.3.mlp", "layers.3.mlp"),
        ("#5", "#5"),
        ("12", "12"),
    ],
)
def test_ranges_without_what_changes_from_call_to_call(text: str, key: str) -> None:
    assert range_key(text) == key


def flame_of(first: int, *kernels: str) -> TraceBuilder:
    """Eight steps, with numbers in the ranges' names that count from ``first``."""
    builder = TraceBuilder().rank(0)
    for number in range(8):
        start = 100 * number
        builder.range(start, start + 90, "step:decode bs=1")
        builder.range(start + 1, start + 80, f"aten::mm, seq = {first + number}, sizes = [[{number}]]")
        for place, kernel in enumerate(kernels):
            at = start + 10 * place
            builder.launch(at + 2, at + 3, kernel, at + 4, at + 9)
    return builder


def labels_of(flame: DiffFlame) -> dict[str, str]:
    """Which side has each label."""
    return {
        flame.strings[label]: ONLY[only] for label, only in zip(flame.label.tolist(), flame.only.tolist(), strict=True)
    }


def test_ranges_merge_over_steps_and_sides() -> None:
    a, b = (
        side_of(builder.trace()) for builder in (flame_of(0, "gemm", "x_kernel"), flame_of(900, "gemm", "y_kernel"))
    )
    flame = diff_flame(a, b, (1.0, 1.0))
    flame.check()
    found = labels_of(flame)
    assert found["aten::mm"] == "both" and not any("seq" in text for text in flame.strings)
    assert (found["x_kernel"], found["y_kernel"]) == ("a", "b")
    row = [flame.strings[label] for label in flame.label.tolist()].index("aten::mm")
    assert (flame.a_count[row], flame.b_count[row], flame.a_ns[row]) == (2, 2, 10)
    assert sum(flame.strings[label] == "aten::mm" for label in flame.label.tolist()) == 1
