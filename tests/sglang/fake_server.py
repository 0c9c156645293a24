"""A small SGLang on disk: its 0.5.17 modules, classes and signatures where the plugin meets them, with empty bodies.

``build`` writes it, a torch with module hooks and the plugin's entry point into a folder; ``run`` starts a Python
process in which they can be imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]

TORCH = """
from contextlib import contextmanager
_pre, _post = {}, {}
class Handle:
    def __init__(self, hooks): self.hooks = hooks
    def remove(self): self.hooks.clear()
def register_module_forward_pre_hook(hook):
    _pre[0] = hook
    return Handle(_pre)
def register_module_forward_hook(hook, *, with_kwargs=False, always_call=False):
    assert always_call
    _post[0] = hook
    return Handle(_post)
class Module:
    def named_modules(self, prefix=""):
        yield prefix, self
        for name, child in vars(self).items():
            if isinstance(child, Module):
                yield from child.named_modules(f"{prefix}.{name}".lstrip("."))
    def __call__(self, *args):
        for hook in _pre.values(): hook(self, args)
        try:
            return self.forward(*args)
        finally:
            for hook in _post.values(): hook(self, args, None)
"""

CUDA = """
from contextlib import contextmanager
capturing = False
def is_current_stream_capturing(): return capturing
@contextmanager
def graph():
    global capturing
    capturing = True
    try: yield
    finally: capturing = False
"""

REGISTRY = """
import enum, functools, pkgutil, sys
class HookType(enum.Enum):
    BEFORE, AFTER, AROUND, REPLACE = "before", "after", "around", "replace"
class HookRegistry:
    _hooks, _patched = {}, set()
    @classmethod
    def register(cls, target, hook, hook_type=HookType.AFTER, *, source=None):
        assert hook_type is HookType.AROUND
        cls._hooks[target] = hook
    @classmethod
    def apply_hooks(cls):
        for target, hook in cls._hooks.items():
            if target in cls._patched: continue
            owner, name = target.rsplit(".", 1)
            owner = pkgutil.resolve_name(owner)
            original = getattr(owner, name)
            def wrapper(*args, _original=original, _hook=hook, **kwargs):
                return _hook(_original, *args, **kwargs)
            wrapped = functools.wraps(original)(wrapper)
            setattr(owner, name, wrapped)
            for module in list(sys.modules.values()):
                for key, value in list(vars(module).items()):
                    if value is original: setattr(module, key, wrapped)
            cls._patched.add(target)
"""

LOADER = """
from importlib.metadata import entry_points
from .hook_registry import HookRegistry
def load_plugins():
    for point in entry_points(group="sglang.srt.plugins"):
        point.load()()
    HookRegistry.apply_hooks()
"""

BATCHES = """
import enum
class ForwardMode(enum.IntEnum):
    EXTEND, DECODE, MIXED, IDLE, TARGET_VERIFY = 1, 2, 3, 4, 5
    def is_extend(self): return self in (self.EXTEND, self.MIXED, self.TARGET_VERIFY)
    def is_target_verify(self): return self is self.TARGET_VERIFY
    def is_idle(self): return self is self.IDLE
class ScheduleBatch:
    def __init__(self, mode, size):
        self.forward_mode, self.reqs, self.is_extend_in_batch = mode, [None] * size, False
class ForwardBatch:
    def __init__(self, mode, size):
        self.forward_mode, self.batch_size = mode, size
"""

TP_WORKER = """
from sglang.batches import ForwardBatch
class TpModelWorker:
    def __init__(self, model_runner): self.model_runner = model_runner
    def forward_batch_generation(self, batch, forward_batch=None, pp_proxy_tensors=None, is_verify=False,
                                 skip_attn_backend_init=None, *, capture_hidden_mode=None):
        forward_batch = forward_batch or ForwardBatch(batch.forward_mode, len(batch.reqs))
        return self.model_runner.forward(forward_batch, pp_proxy_tensors=pp_proxy_tensors)
"""

MODEL_RUNNER = """
from types import SimpleNamespace
from torch.nn.modules.module import Module
class Leaf(Module):
    def forward(self): return 1
class Layer(Module):
    def __init__(self): self.self_attn, self.mlp = Leaf(), Leaf()
    def forward(self): return self.self_attn() + self.mlp()
class Body(Module):
    def __init__(self): self.first, self.second = Layer(), Layer()
    def forward(self): return self.first() + self.second()
class Model(Module):
    def __init__(self): self.model = Body()
    def forward(self): return self.model()
class ModelRunner:
    def __init__(self, is_draft_worker=False):
        self.is_draft_worker, self.gpu_id, self.ps = is_draft_worker, 3, SimpleNamespace(tp_rank=3)
        self.server_args = SimpleNamespace(enable_torch_compile=False)
        self.capture_tail_hooks, self.broken = [], False
        self.load_model()
    def load_model(self): self.model = Model()
    def forward(self, forward_batch, skip_attn_backend_init=None, pp_proxy_tensors=None):
        if self.broken: raise MemoryError("the server's own")
        return self.model.forward()
"""

GRAPHS = """
import torch.cuda
class FullCudaGraphBackend:
    def capture_one(self, shape_key, forward_fn, capture_inputs=None, post_warmup_hook=None):
        for _ in range(2): forward_fn()
        with torch.cuda.graph(): return forward_fn()
"""

SPEC_INFO = """
import enum
class SpeculativeAlgorithm(enum.Enum):
    DFLASH, OTHER = 1, 2
    def create_worker(self, server_args):
        if self is self.DFLASH:
            from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2
            return DFlashWorkerV2
        from sglang.srt.speculative.other_worker import OtherWorker
        return OtherWorker
"""

DFLASH = """
from sglang.batches import ForwardBatch, ForwardMode
from sglang.kernels import apply_dflash_simulated_acceptance
class _DflashDraftSampler:
    def __call__(self, hidden_states, input_ids=None): return hidden_states
class DFlashWorkerV2:
    def __init__(self, target_worker, draft_model_runner, graphs):
        self.target_worker, self.draft_model_runner, self.graphs = target_worker, draft_model_runner, graphs
    def forward_batch_generation(self, batch, on_publish=None, grammar_barrier=None):
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            result = self.target_worker.forward_batch_generation(batch, capture_hidden_mode="full")
            self._append_target_hidden_to_draft_kv_by_loc(target_hidden=result, cache_loc=0, positions=0)
            return result
        verify = ForwardBatch(ForwardMode.TARGET_VERIFY, len(batch.reqs))
        draft = self.draft_model_runner.forward(verify)
        if not self.graphs: draft = self._greedy_sample_from_vocab_parallel_head(hidden_states=draft, lm_head=0)
        result = self.target_worker.forward_batch_generation(batch=None, forward_batch=verify, is_verify=True)
        apply_dflash_simulated_acceptance(accept_len=result)
        self._append_target_hidden_to_draft_kv_by_loc(target_hidden=result, cache_loc=0, positions=0)
        return result
    def _greedy_sample_from_vocab_parallel_head(self, *, hidden_states, lm_head, chunk_size=256):
        return hidden_states
    def _append_target_hidden_to_draft_kv_by_loc(self, *, target_hidden, cache_loc, positions, cache_loc_2d=None,
                                                 commit_lens=None): pass
"""

OTHER = """
class OtherWorker:
    def __init__(self, target_worker): self.target_worker = target_worker
    def forward_batch_generation(self, batch): return self.target_worker.forward_batch_generation(batch)
"""

FILES = {
    "torch/__init__.py": "from . import cuda",
    "torch/cuda.py": CUDA,
    "torch/nn/modules/module.py": TORCH,
    "sglang/__init__.py": '__version__ = "0.5.17"',
    "sglang/batches.py": BATCHES,
    "sglang/kernels.py": "def apply_dflash_simulated_acceptance(*, accept_len): pass",
    "sglang/srt/environ.py": "from types import SimpleNamespace as N\n"
    "unset = N(get=lambda: None)\nenvs = N(SGLANG_PLUGINS=unset, SGLANG_PLATFORM=unset)",
    "sglang/srt/plugins/__init__.py": LOADER,
    "sglang/srt/plugins/hook_registry.py": REGISTRY,
    "sglang/srt/managers/tp_worker.py": TP_WORKER,
    "sglang/srt/model_executor/model_runner.py": MODEL_RUNNER,
    "sglang/srt/model_executor/runner_backend/full_cuda_graph_backend.py": GRAPHS,
    "sglang/srt/speculative/spec_info.py": SPEC_INFO,
    "sglang/srt/speculative/dflash_worker_v2.py": DFLASH,
    "sglang/srt/speculative/other_worker.py": OTHER,
    "profkit_fake.dist-info/METADATA": "Metadata-Version: 2.1\nName: profkit-fake\nVersion: 0",
    "profkit_fake.dist-info/entry_points.txt": "[sglang.srt.plugins]\nprofkit = profkit.sglang.plugin:activate",
}

SERVER = """
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.batches import ForwardMode, ScheduleBatch
from sglang.srt.managers.tp_worker import TpModelWorker
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.model_executor.runner_backend.full_cuda_graph_backend import FullCudaGraphBackend
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
def batch(mode, size): return ScheduleBatch(ForwardMode[mode], size)
def dflash(graphs=True):
    worker = SpeculativeAlgorithm.DFLASH.create_worker(None)
    return worker(TpModelWorker(ModelRunner()), ModelRunner(is_draft_worker=True), graphs)
"""


def build(root: Path, **replaced: str) -> Path:
    """Write the tree into ``root``; ``replaced`` gives other texts, by file name without its ending."""
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(replaced.get(path.stem, text))
    return root


def command(script: str) -> list[str]:
    """The command line of a server that runs ``script`` after the plugins are loaded."""
    return [sys.executable, "-c", SERVER + script]


def environment(root: Path, **more: str) -> dict[str, str]:
    """The environment in which the tree at ``root`` is SGLang, with the plugin on and its records in ``root/out``."""
    (root / "out").mkdir(exist_ok=True)
    path = os.pathsep.join((str(root), str(CHECKOUT)))
    return {**os.environ, "PYTHONPATH": path, "PROFKIT_SGLANG": "1", "PROFKIT_OUT": str(root / "out"), **more}


def run(root: Path, script: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run ``script`` in a fake server; its output, with the exit status checked by the caller."""
    return subprocess.run(
        command(script), env=environment(root, **more), capture_output=True, text=True, timeout=120, check=False
    )
