"""The built-in rules on names that engines and libraries really emit, and a user's rules in front of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit import Recording, analyze, load_rules
from profkit.analyzers.attribution import classify
from profkit.analyzers.rules import Rules
from profkit.analyzers.vocabulary import CLASSES
from tests.builders import TraceBuilder

CLASS_OF = {
    "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT": "gemm",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel__5x_cublas": "gemm",
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_64x2_tn_align8>(T1::Params)": "gemm",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>>>()": "gemm",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float>()": "gemm",
    "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, float, 128, 16, 4>()": "gemm",
    "bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x8x128u2_s6_et128x8_swiGlu_dynB_sm100f": "gemm",
    "deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 2112u, 7168u>": "gemm",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32": "gemm",
    "fused_moe_kernel": "moe",
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu": "moe",
    "void topkGatingSoftmax<float, 8, 128, 4, 16, 32>()": "moe",
    "moe_align_block_size_kernel": "moe",
    "void moe::dev::finalize::finalizeKernel<moe::dev::finalize::KernelParams<cutlass::bfloat16_t>>()": "moe",
    "void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>()": "attention",
    "void flashinfer::BatchPrefillWithPagedKVCacheKernel<128u>()": "attention",
    "fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP64MultiCtasKv": "attention",
    "_fwd_grouped_kernel_stage1": "attention",
    "_fwd_kernel": "attention",
    "kernel_unified_attention_2d": "attention",
    "flash_fwd_mla_combine_kernel": "attention",
    "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>()": "norm",
    "void (anonymous namespace)::fused_qknorm_warp<128l, true, __nv_bfloat16>()": "norm",
    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1E": "norm",
    "void (anonymous namespace)::fused_rope_kernel<true, 128l, true, __nv_bfloat16>()": "rope",
    "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)": "rope",
    "void (anonymous namespace)::act_and_mul_kernel<__nv_bfloat16>()": "activation",
    "void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &silu>()": "activation",
    "void (anonymous namespace)::store_kvcache<2048l, 4, false, long>()": "kv_cache",
    "create_flashinfer_kv_indices_triton": "kv_cache",
    "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>()": "kv_cache",
    "_dflash_accept_bonus_contig_kernel": "sampling",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>()": "sampling",
    "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u>()": "sampling",
    "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>": "copy",
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::OpaqueType<2u>>()": "copy",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>()": "elementwise",
    "triton_poi_fused__to_copy_1": "elementwise",
    "per_token_group_quant_8bit_kernel": "elementwise",
    "somebody_elses_kernel": "other",
}

COLLECTIVE_OF = {
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": ("all_reduce", "NCCL"),
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": ("all_gather", "NCCL"),
    "ncclDevKernel_ReduceScatter_Sum_f32_RING_SIMPLE(ncclDevKernelArgsStorage<4096ul>)": ("reduce_scatter", "NCCL"),
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": ("send_recv", "NCCL"),
    "ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm*, unsigned long, ncclWork*)": ("all_reduce", "NCCL"),
    "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)": ("broadcast_reduce", "NCCL"),
    "void sglang::cross_device_reduce_1stage<__nv_bfloat16, 2>()": ("all_reduce", "custom all-reduce"),
    "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>()": ("all_reduce", "custom all-reduce"),
    "one_shot_all_reduce_kernel": ("all_reduce", "custom all-reduce"),
    "two_shot_all_reduce_kernel": ("all_reduce", "custom all-reduce"),
    "multimem_all_reduce_kernel": ("all_reduce", "symmetric memory"),
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<2>()": (
        "all_reduce", "FlashInfer fused all-reduce",
    ),
    "void deep_ep::internode_ll::dispatch<true, 4, 4, 7168>()": ("ep_dispatch", "DeepEP"),
    "void deep_ep::internode_ll::combine<false, 4, 4, 7168>()": ("ep_combine", "DeepEP"),
    "void deep_ep::intranode::notify_dispatch<8>()": ("ep_dispatch", "DeepEP"),
    "nvshmemi_transfer_rma_put": ("nvshmem", "NVSHMEM"),
    "PtoP": ("peer_copy", "peer copy"),
    "Memcpy PtoP (Device -> Device)": ("peer_copy", "peer copy"),
}  # fmt: skip


@pytest.mark.parametrize("name", CLASS_OF)
def test_class(name: str) -> None:
    trace = TraceBuilder().launch(1, 2, name, 3, 4).trace()
    classes, collective, _ = classify(trace, load_rules())
    assert (CLASSES[classes[0]], collective[0]) == (CLASS_OF[name], -1)


@pytest.mark.parametrize("name", COLLECTIVE_OF)
def test_collective(name: str) -> None:
    trace = TraceBuilder().launch(1, 2, name, 3, 4).trace()
    classes, _, rules = classify(trace, load_rules())
    assert CLASSES[classes[0]] == "collective"
    assert [(rule.value, rule.library) for rule in rules] == [COLLECTIVE_OF[name]]


@pytest.mark.parametrize(
    ("api", "blocks"),
    [
        ("cudaStreamSynchronize", True),
        ("cudaEventSynchronize", True),
        ("cudaDeviceSynchronize", True),
        ("cuStreamSynchronize", True),
        ("hipDeviceSynchronize", True),
        ("cudaMemcpy", True),
        ("cuMemcpyDtoH_v2", True),
        ("cudaMemcpyAsync", False),
        ("cuMemcpyDtoHAsync_v2", False),
        ("cudaStreamWaitEvent", False),
        ("cudaEventQuery", False),
        ("cudaLaunchKernel", False),
    ],
)
def test_blocking_calls(api: str, blocks: bool) -> None:
    assert (Rules.match(load_rules().blocking, api) is not None) == blocks


def test_a_users_rule_goes_first(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(
        "[[class]]\nmatch = 'nvjet'\nclass = 'moe'\n"
        "[[collective]]\nmatch = 'my_ring'\nkind = 'all_reduce'\nlibrary = 'mine'\n"
        "[[blocking]]\nmatch = '^my_wait'\n",
        "utf-8",
    )
    rules = load_rules(file)
    builder = TraceBuilder().launch(1, 2, "nvjet_tst", 3, 4).launch(1, 2, "my_ring_kernel", 5, 6)
    classes, _, collectives = classify(builder.trace(), rules)
    assert [CLASSES[code] for code in classes] == ["moe", "collective"]
    assert collectives[0].library == "mine" and collectives[0].paired
    assert Rules.match(rules.blocking, "my_wait_for_gpu") and Rules.match(rules.blocking, "cudaStreamSynchronize")


def test_largest_kernels_that_no_rule_names_are_listed() -> None:
    """Behind the forty dearest of all, the ten dearest without a rule."""
    builder = TraceBuilder().range(0, 10, "step:decode bs=1")
    time = 100
    for number in range(60):
        length = 1_000 - number
        builder.launch(1, 2, f"nvjet_{number}", time, time + length)
        time += length
    for number in range(20):
        builder.launch(1, 2, f"strange_{number}", time, time + 50 - number)
        time += 50
    kernels = analyze([Recording("unnamed", "", builder.trace())])[0].traces[0].devices["0"].kernels
    assert [kernel.name for kernel in kernels if kernel.rule] == [f"nvjet_{number}" for number in range(40)]
    assert [kernel.name for kernel in kernels if not kernel.rule] == [f"strange_{number}" for number in range(10)]
