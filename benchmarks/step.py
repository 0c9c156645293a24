"""The ops of one decode step of a DFlash server, in order: Qwen3-30B-A3B shapes, drafter of 6 layers, tensor parallel.

Taken over from what such a server launches: 16 eager ops, a draft graph of 105 nodes, 18 eager ops, a verify graph of
1,071 nodes and 21 eager ops.
"""

from __future__ import annotations

from dataclasses import dataclass

KERNEL, COPY, SET = "kernel", "memcpy", "memset"


@dataclass(frozen=True, slots=True)
class Op:
    """An op of the step: its names, its usual time on the GPU, and the pause before it, in nanoseconds."""

    name: str
    length: int
    pause: int = 450
    kind: str = KERNEL
    full_name: str = ""
    copy_kind: int = 0

    @property
    def collective(self) -> bool:
        """Whether all ranks take part in it."""
        return self.name.startswith("nccl")


@dataclass(frozen=True, slots=True)
class Segment:
    """Ops launched in one range (``""``: directly in the step), one by one or as one graph."""

    range: str
    ops: tuple[Op, ...]
    graph: bool = False


def _torch(name: str, detail: str, length: int) -> Op:
    return Op(name, length, full_name=f"void at::native::{name}<{detail}>(int, T2, T3)")


def _triton(name: str, length: int) -> Op:
    return Op(name, length)


def _norm(name: str, length: int, pause: int = 450) -> Op:
    arguments = "T2 *, T2 *, T2 *, unsigned int, unsigned int, unsigned int, float, float"
    return Op(
        name, length, pause, full_name=f"void flashinfer::norm::{name}<(unsigned int)8, __nv_bfloat16>({arguments})"
    )


def _custom(name: str, length: int) -> Op:
    return Op(
        name, length, 160, full_name=f"void <unnamed>::{name}<(long)128, (bool)1, __nv_bfloat16>(<unnamed>::Params)"
    )


def _gemm(shape: str, length: int) -> Op:
    return Op(f"nvjet_sm90_tst_{shape}", length, 480)


def _nccl(what: str, length: int) -> Op:
    name = f"ncclDevKernel_{what}_RING_LL"
    return Op(name, length, 2400, full_name=f"{name}(ncclDevKernelArgsStorage<(unsigned long)4096>)")


CAST = _torch("unrolled_elementwise_kernel", "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)", 1_400)
STRIDED = _torch("elementwise_kernel", "(int)128, (int)4, at::native::direct_copy_kernel_cuda", 1_850)
FILL = _torch("vectorized_elementwise_kernel", "(int)4, at::native::FillFunctor<int>, std::array<char *, 1>", 750)
ADD = _torch("vectorized_elementwise_kernel", "(int)2, at::native::CUDAFunctorOnSelf_add<long>", 900)
MULTIPLY = _torch("vectorized_elementwise_kernel", "(int)2, at::native::MulFunctor<long>", 940)
ARANGE = _custom("elementwise_kernel_with_index", 680)
MANY = _torch("multi_tensor_apply_kernel", "at::native::TensorListMetadata<(int)2>, at::native::UnaryOpFunctor", 1_200)
INDEX = _torch("index_elementwise_kernel", "(int)128, (int)4, at::native::gpu_index_kernel", 1_750)
PUT = _torch("index_elementwise_kernel", "(int)128, (int)4, at::native::index_put_kernel_impl", 2_000)
MAXIMUM = _torch("reduce_kernel", "(int)512, (int)1, at::native::ReduceOp<c10::BFloat16, MaxOps>", 26_400)
ARGMAX = _torch("reduce_kernel", "(int)512, (int)1, at::native::ReduceOp<float, ArgMaxOps>", 4_400)
SCATTER = _torch("_scatter_gather_elementwise_kernel", "(int)128, (int)8", 1_600)
CONCATENATE = _torch("CatArrayBatchedCopy_vectorized", "at::native::OpaqueType<2>, unsigned int", 2_300)
SCAN = (_custom("DeviceScanInitKernel", 740), _custom("DeviceScanKernel", 1_350))
PAGES = _triton("create_flashinfer_kv_indices_triton", 1_650)
EMBED = _triton("_vocab_parallel_embedding_kernel", 1_300)
ROUTE = _triton("_router_triton_kernel", 2_800)
EXPERTS_UP, EXPERTS_DOWN = _triton("fused_moe_kernel", 19_200), _triton("fused_moe_kernel", 10_600)
ATTEND = _triton("_fwd_kernel", 16_900)
ON_DEVICE = Op("memcpy", 1_050, kind=COPY, copy_kind=8)
TO_DEVICE = Op("memcpy", 990, kind=COPY, copy_kind=1)
CLEAR = Op("memset", 860, 1_450, kind=SET)
REDUCE, GATHER = _nccl("AllReduce_Sum_bf16", 9_500), _nccl("AllGather", 6_500)
NORM, ADD_NORM = _norm("RMSNormKernel", 2_200), _norm("FusedAddRMSNormKernel", 2_700, -780)
PROJECT, HEAD = _gemm("64x8_64x16_4x1_v_bz_TNT", 5_750), _gemm("192x8_64x8_2x1_v_bz_TNT", 72_500)
UP, SPLIT = _gemm("64x8_64x16_4x1_v_bz_TNT", 8_600), _gemm("64x8_64x16_4x1_v_bz_splitK_TNT", 5_800)
MERGE = Op("splitKreduce_kernel", 1_900, 160, full_name="void cublasLt::splitKreduce_kernel<(int)32, (int)16, int>(T4)")
GATE = _gemm("8x64_64x16_4x1_v_bz_TNN", 5_200)
QK_NORM, ROPE = _custom("fused_qknorm_warp", 1_400), _custom("fused_rope_kernel", 1_700)
ROPE_STORE, STORE = _custom("fused_rope_store_kernel", 1_800), _custom("store_kvcache", 1_450)
ACTIVATE = _custom("act_and_mul_kernel", 1_500)
ALIGN, COUNT = _custom("moe_align_block_size_kernel", 2_700), _custom("count_and_sort_expert_tokens_kernel", 1_190)
COMBINE = _triton("triton_per_fused_copy__mul_sum_0", 2_300)

METADATA = (MANY, ON_DEVICE, ARANGE, CAST, *SCAN, CAST, PAGES, ADD, MULTIPLY, *SCAN, ON_DEVICE)
ATTENTION = (STRIDED, STRIDED, ATTEND, PROJECT, REDUCE, ADD_NORM)
DRAFT_LAYER = (PROJECT, QK_NORM, ROPE, STORE, *ATTENTION, UP, ACTIVATE, SPLIT, MERGE, REDUCE, ADD_NORM)
DRAFT_HEAD = (CLEAR, HEAD, MAXIMUM, GATHER, GATHER, ARGMAX, SCATTER, ON_DEVICE)
EXPERTS = (GATE, FILL, ROUTE, CAST, INDEX, ALIGN, COUNT, EXPERTS_UP, ACTIVATE, EXPERTS_DOWN, COMBINE, REDUCE, ADD_NORM)
TARGET_LAYER = (PROJECT, QK_NORM, ROPE_STORE, *ATTENTION, *EXPERTS)
TARGET_HEAD = (CONCATENATE, CLEAR, HEAD, GATHER, STRIDED, CAST)
KEPT_LAYERS = (1, 10, 19, 28, 37, 46)
TARGET = tuple(op for layer in range(48) for op in (*TARGET_LAYER, *([ON_DEVICE] if layer in KEPT_LAYERS else [])))
PREPARE = _triton("_prepare_dflash_draft_block_contig_kernel", 1_630)
ACCEPT = _triton("_dflash_accept_bonus_contig_kernel", 1_700)
STACKED, KEEP = _triton("_fused_norm_rope_kernel_stacked", 1_900), _triton("set_kv_buffer_prefix_valid_tiled", 1_170)

STEP = (
    Segment("prepare", (PREPARE,)),
    Segment("", (EMBED, REDUCE)),
    Segment("draft", METADATA),
    Segment("draft", (NORM, *DRAFT_LAYER * 6, *DRAFT_HEAD), graph=True),
    Segment("", (ON_DEVICE, ON_DEVICE, TO_DEVICE, *METADATA)),
    Segment("target", (ON_DEVICE, ON_DEVICE)),
    Segment("target", (EMBED, REDUCE, NORM, *TARGET, *TARGET_HEAD), graph=True),
    Segment("", (CLEAR, ARGMAX)),
    Segment("accept", (ACCEPT, FILL, FILL, FILL, FILL)),
    Segment("", (CAST, ADD, PUT)),
    Segment("kv_append", (SPLIT, MERGE, NORM, PROJECT, STACKED, *[KEEP] * 6)),
)
OPS = tuple(op for segment in STEP for op in segment.ops)
