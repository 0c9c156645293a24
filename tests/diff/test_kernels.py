"""Names of kernels without what changes between builds, and sequences brought together."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.analyzers.diff.names import kernel_key
from profkit.analyzers.diff.sequences import MOST_BITS, align

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
    begin = time.process_time()
    pairs = align(a, b)
    assert time.process_time() - begin < 0.3
    assert sum(None not in pair for pair in pairs) == len(b) - b.count("another")


def test_endless_sequences_are_paired_by_order() -> None:
    count = int(MOST_BITS**0.5) + 1
    a, b = ["x"] * count, ["x"] * (count - 2) + ["y"] * 5
    pairs = align(a, b)
    assert pairs[0] == (0, 0) and pairs.count((count - 1, None)) == 1
    assert len([j for i, j in pairs if i is None]) == 5
