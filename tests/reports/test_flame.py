"""Flame graphs: every nanosecond once, under the right frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from profkit.analyzers import attribute
from profkit.analyzers.flame import LEVELS, Flame, gpu_flame, host_flame
from profkit.analyzers.shortnames import short_name
from profkit.traces import open_trace
from tests.builders import TraceBuilder
from tests.reports.pages import large, speculative


def paths(flame: Flame) -> dict[str, int]:
    """Own time by path of labels, as folded stacks write it."""
    found: dict[str, int] = {}
    for frame in np.flatnonzero(flame.self_ns).tolist():
        labels, at = [], frame
        while at > 0:
            labels.append(flame.strings[flame.label[at]])
            at = int(flame.parent[at])
        found[";".join(reversed(labels))] = int(flame.self_ns[frame])
    return found


def one_step() -> TraceBuilder:
    """A decode step with a graph and a kernel, and a kernel that no step launched."""
    builder = TraceBuilder().rank(0)
    builder.range(0, 1000, "step:decode bs=1").range(10, 100, "draft").range(20, 90, "layer", "model")
    builder.launch(30, 40, "gemm", 110, 150)
    builder.range(200, 900, "target").graph(210, 260, ("gemm", 300, 340), ("attention", 350, 360), ("gemm", 360, 400))
    return builder.launch(1_100, 1_107, "memset", 390, 395)


def test_gpu_time_lies_under_step_phase_ranges_class_and_kernel() -> None:
    flame = gpu_flame(attribute(one_step().trace()), 0)
    flame.check()
    assert paths(flame) == {
        "step:decode;draft;draft;layer;gemm;nvjet_tst_64x8_64x16": 40,
        "step:decode;verify;target;gemm;nvjet_tst_64x8_64x16": 80,
        "step:decode;verify;target;attention;flash_fwd_splitkv_kernel": 10,
        "outside;copy;memset": 5,
    }
    assert flame.total_ns[0] == 135
    assert flame.count[0] == 5
    assert flame.steps == 1


def test_a_graph_launch_counts_once_and_calls_lead_to_what_they_launched() -> None:
    flame = host_flame(attribute(one_step().trace()), 0)
    flame.check()
    assert paths(flame) == {
        "step:decode;draft;draft;layer;cudaLaunchKernel;gemm;nvjet_tst_64x8_64x16": 10,
        "step:decode;verify;target;cudaGraphLaunch (3 nodes)": 50,
        "outside;cudaMemcpyAsync;copy;memset": 7,
    }
    assert flame.count[0] == 3


@pytest.mark.parametrize("make", [one_step, speculative, lambda: large(3_000)])
def test_totals_are_those_of_the_trace(make: type[TraceBuilder]) -> None:
    attribution = attribute(make().trace())
    ops, launches = attribution.trace.ops, attribution.trace.launches
    for device, timeline in attribution.devices.items():
        mine = ops.device == device
        start = np.maximum(ops.start[mine], timeline.window_start)
        end = np.minimum(ops.end[mine], timeline.window_end)
        gpu, host = gpu_flame(attribution, device), host_flame(attribution, device)
        assert gpu.total_ns[0] == np.maximum(end - start, 0).sum()
        used = np.unique(attribution.launch[mine][end > start])
        assert host.total_ns[0] == (launches.end - launches.start)[used].sum()
        for flame in (gpu, host):
            flame.check()
            assert flame.self_ns.sum() == flame.total_ns[0]
        whole = gpu_flame(attribution, device, window=False)
        assert whole.total_ns[0] == (ops.end - ops.start)[mine].sum()


def test_steps_merge_into_one_tree() -> None:
    flame = gpu_flame(attribute(speculative(steps=4).trace()), 0)
    names = [flame.strings[label] for label in flame.label]
    assert flame.steps == 4
    assert names.count("draft") == 2
    assert [LEVELS[level] for level in flame.level[:4]] == ["root", "step", "phase", "phase"]


def test_a_device_without_decode_steps_has_an_empty_tree() -> None:
    flame = gpu_flame(attribute(TraceBuilder().rank(0).launch(0, 1, "gemm", 2, 9).trace()), 0)
    assert len(flame.parent) == 1
    assert flame.total_ns.tolist() == [0]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void flashinfer::norm::RMSNormKernel<(unsigned int)8, __nv_bfloat16>(T2 *, T2 *)", "RMSNormKernel"),
        ("void <unnamed>::act_and_mul_kernel<__nv_bfloat16, (<unnamed>::Kind)0>(<unnamed>::P)", "act_and_mul_kernel"),
        (
            "void at::native::elementwise_kernel<128, 4, void at::native::gpu_kernel_impl_nocast<"
            "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda()]>>(int)",
            "elementwise_kernel · direct_copy",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>(T3)",
            "reduce_kernel · ArgMaxOps",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<long, long, "
            "at::native::binary_internal::MulFunctor<long>>, std::array<char *, 2ul>>(int, T2, T3)",
            "vectorized_elementwise_kernel · MulFunctor",
        ),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm>(T1::Params)",
         "Kernel2 · cutlass_80_wmma_tensorop_bf16_s161616gemm"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_AllGather_RING_LL"),
        ("Memcpy DtoH (Device -> Pinned)", "Memcpy DtoH"),
        ("_fwd_kernel", "_fwd_kernel"),
        ("_ZN2at6native4kernEv", "_ZN2at6native4kernEv"),
        ("", ""),
        ("<<<(((", "<<<((("),
    ],
)  # fmt: skip
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short


def test_ranges_of_libraries_are_left_out() -> None:
    """They stand around eager launches only, and would set eager and graph collectives apart."""
    root = Path(__file__).parents[2] / "traces"
    paths = []
    for name in ("c1-eager", "c1"):
        flame = gpu_flame(attribute(open_trace(root / "ep2-dflash" / name)), 0, modules=False)
        collective = np.flatnonzero([flame.strings[label] == "collective" for label in flame.label])
        paths.append({flame.strings[flame.label[flame.parent[row]]] for row in collective.tolist()})
        assert "ncclAllReduce" not in flame.strings
    assert "target" in paths[0] & paths[1]
