"""The probe table: which function of which SGLang release is wrapped, and what for.

Targets are dotted paths under ``sglang.srt``. ``kind`` says what the hook does:

    step      pushes ``step:decode bs=N`` or ``step:prefill bs=N``, unless a step is open already
    forward   pushes ``target`` or ``draft``, by the model runner's ``is_draft_worker``
    range     pushes the range of the row
    worker    installs the rows of the speculative worker that the server has chosen
    load      learns a model runner's module names
    graph     notes the modules of one CUDA graph while it is captured
    moment    notes its own name while a graph is captured: code of the graph that is no module
    open      opens a window of a recorder that lives in the process, once SGLang has started to profile
    close     closes it, before SGLang says that it is done

Two more ranges need no row: in a decode step of a speculative worker, ``prepare`` opens with the step and ``accept``
when the target's forward returns, both until the next range opens. The workers do this work inline: block
preparation, embedding of the mask tokens, argmax over the vocabulary, acceptance.

What ``range`` rows mean outside DFlash: ``kv_append`` is also EAGLE's and MTP's draft extend, a drafter's forward that
writes the accepted tokens' hidden states into the draft KV cache and yields the first proposal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

ROOT = "sglang.srt."
OLDEST = (0, 5, 12)
NEWEST = (0, 5, 23)
PLAIN = "plain"
RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)")

Kind = Literal["step", "forward", "range", "worker", "load", "graph", "moment", "open", "close"]
Release = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Probe:
    """A function to wrap in the releases ``first`` to ``last`` (inclusive; ``None``: the newest)."""

    group: str
    kind: Kind
    name: str
    target: str
    first: Release
    last: Release | None

    def covers(self, release: Release) -> bool:
        """Whether the row is meant for ``release``."""
        return self.first <= release and (self.last is None or release <= self.last)


_ROWS = """
plain   step     step          12-    managers.tp_worker.TpModelWorker.forward_batch_generation
plain   forward  target        12-    model_executor.model_runner.ModelRunner.forward
plain   load     -             12-    model_executor.model_runner.ModelRunner.load_model
plain   graph    -             12-13  model_executor.cuda_graph_runner.CudaGraphRunner.capture_one_batch_size
plain   graph    -             14-    model_executor.runner_backend.full_cuda_graph_backend.FullCudaGraphBackend.capture_one
plain   open     -             12-12  managers.scheduler_profiler_mixin.SchedulerProfilerMixin.start_profile
plain   open     -             13-    managers.scheduler_components.profiler_manager.SchedulerProfilerManager._start_profile
plain   close    -             12-12  managers.scheduler_profiler_mixin.SchedulerProfilerMixin.stop_profile
plain   close    -             13-    managers.scheduler_components.profiler_manager.SchedulerProfilerManager._stop_profile
plain   worker   -             12-    speculative.spec_info.SpeculativeAlgorithm.create_worker

dflash  step     step          12-13  speculative.dflash_worker.DFlashWorker.forward_batch_generation
dflash  range    prepare       12-13  speculative.dflash_worker.DFlashWorker._prepare_for_speculative_decoding
dflash  range    draft_sample  12-13  speculative.dflash_worker.DFlashWorker._greedy_sample_from_vocab_parallel_head
dflash  range    kv_append     12-13  speculative.dflash_worker.DFlashWorker._append_target_hidden_to_draft_kv
dflash  step     step          14-    speculative.dflash_worker_v2.DFlashWorkerV2.forward_batch_generation
dflash  range    draft_sample  14-    speculative.dflash_worker_v2.DFlashWorkerV2._greedy_sample_from_vocab_parallel_head
dflash  range    draft_sample  19-    speculative.dflash_worker_v2.DFlashWorkerV2._propose_selector_block
dflash  range    draft_sample  20-    speculative.dflash_worker_v2.domino_greedy_rollout
dflash  range    draft_sample  21-    speculative.dflash_worker_v2.propose_lilicorr_block
dflash  moment   draft_sample  15-    speculative.dflash_worker_v2._DflashDraftSampler.__call__
dflash  moment   draft_sample  19-    speculative.dflash_worker_v2._SelectorDraftSampler.__call__
dflash  moment   draft_sample  20-    speculative.dflash_worker_v2._DominoDraftSampler.__call__
dflash  range    accept_sim    17-    speculative.dflash_worker_v2.apply_dflash_simulated_acceptance
dflash  range    kv_append     14-    speculative.dflash_worker_v2.DFlashWorkerV2._append_target_hidden_to_draft_kv_by_loc

dspark  step     step          16-    speculative.dspark_components.dspark_worker_v2.DSparkWorkerV2.forward_batch_generation
dspark  range    draft         16-    speculative.dspark_components.dspark_draft.DraftBlockProposer.propose
dspark  moment   draft_sample  16-16  speculative.dspark_components.dspark_draft.DsparkDraftSampler.__call__
dspark  moment   draft_sample  17-    speculative.dspark_components.dspark_draft_sampler.DsparkDraftSampler.__call__
dspark  range    kv_append     16-    speculative.dspark_components.dspark_verify.TargetVerifyExecutor.commit_hidden

eagle   step     step          12-12  speculative.eagle_worker.EAGLEWorker.forward_batch_generation
eagle   range    draft         12-12  speculative.eagle_worker.EAGLEWorker.draft
eagle   range    kv_append     12-12  speculative.eagle_worker.EAGLEWorker.forward_draft_extend
eagle   range    kv_append     12-12  speculative.eagle_worker.EAGLEWorker.forward_draft_extend_after_decode
eagle   graph    -             12-13  speculative.eagle_draft_cuda_graph_runner.EAGLEDraftCudaGraphRunner.capture_one_batch_size
eagle   step     step          12-    speculative.eagle_worker_v2.EAGLEWorkerV2.forward_batch_generation
eagle   range    draft         12-    speculative.eagle_worker_v2.EagleDraftWorker.draft
eagle   range    kv_append     12-    speculative.eagle_worker_v2.EagleDraftWorker._draft_extend_for_prefill
eagle   range    kv_append     12-    speculative.eagle_worker_v2.EagleDraftWorker._draft_extend_for_decode

layers  step     step          12-12  speculative.multi_layer_eagle_worker.MultiLayerEagleWorker.forward_batch_generation
layers  range    draft         12-12  speculative.multi_layer_eagle_worker.MultiLayerEagleWorker.draft
layers  range    kv_append     12-12  speculative.multi_layer_eagle_worker.MultiLayerEagleWorker.forward_draft_extend
layers  range    kv_append     12-12  speculative.multi_layer_eagle_worker.MultiLayerEagleWorker.forward_draft_extend_after_decode
layers  step     step          12-    speculative.multi_layer_eagle_worker_v2.MultiLayerEagleWorkerV2.forward_batch_generation
layers  range    draft         12-    speculative.multi_layer_eagle_worker_v2.MultiLayerEagleDraftWorker.draft
layers  range    kv_append     12-    speculative.multi_layer_eagle_worker_v2.MultiLayerEagleDraftWorker._draft_extend_for_prefill
layers  range    kv_append     12-    speculative.multi_layer_eagle_worker_v2.MultiLayerEagleDraftWorker._draft_extend_for_decode

mtp     step     step          12-13  speculative.frozen_kv_mtp_worker.FrozenKVMTPWorker.forward_batch_generation
mtp     range    draft         12-13  speculative.frozen_kv_mtp_worker.FrozenKVMTPWorker.draft
mtp     range    kv_append     12-13  speculative.frozen_kv_mtp_worker.FrozenKVMTPWorker.forward_draft_extend
mtp     range    kv_append     12-13  speculative.frozen_kv_mtp_worker.FrozenKVMTPWorker.forward_draft_extend_after_decode
mtp     step     step          14-    speculative.frozen_kv_mtp_worker_v2.FrozenKVMTPWorkerV2.forward_batch_generation
mtp     range    draft         14-    speculative.frozen_kv_mtp_worker_v2.FrozenKVMTPDraftWorker.draft
mtp     range    kv_append     14-    speculative.frozen_kv_mtp_worker_v2.FrozenKVMTPDraftWorker._draft_extend_for_prefill
mtp     range    kv_append     14-    speculative.frozen_kv_mtp_worker_v2.FrozenKVMTPDraftWorker._draft_extend_for_decode

ngram   step     step          12-    speculative.ngram_worker.NGRAMWorker.forward_batch_generation
"""  # noqa: E501 -- a table reads best with a row to a line


def _probe(row: str) -> Probe:
    group, kind, name, releases, target = row.split()
    first, last = releases.split("-")
    return Probe(
        group,
        kind,  # type: ignore[arg-type]
        name.strip("-"),
        ROOT + target,
        (0, 5, int(first)),
        (0, 5, int(last)) if last else None,
    )


PROBES: tuple[Probe, ...] = tuple(_probe(row) for row in _ROWS.splitlines() if row)


def names_release(version: str) -> bool:
    """Whether an SGLang version is that of a release: a build from its source may be ``main`` or ``0.0.0.dev1``."""
    found = RELEASE.match(version)
    return found is not None and any(int(part) for part in found.groups())


def release_of(version: str) -> Release:
    """The release of an SGLang version: ``0.5.15.post1`` is ``(0, 5, 15)``; the newest where it names none."""
    found = RELEASE.match(version)
    if found is None or not names_release(version):
        return NEWEST
    return int(found[1]), int(found[2]), int(found[3])


def probes_of(release: Release, group: str) -> Iterator[Probe]:
    """The rows of ``group`` for ``release``; those of the newest release for any later one."""
    return (probe for probe in PROBES if probe.group == group and probe.covers(release))


def groups_of(worker: type, release: Release) -> tuple[str, ...]:
    """The groups whose step is that of ``worker`` or of a class that it is derived from, the nearest first."""
    steps = {probe.target: probe.group for probe in PROBES if probe.kind == "step" and probe.covers(release)}
    named = (f"{base.__module__}.{base.__qualname__}.forward_batch_generation" for base in worker.__mro__)
    return tuple(dict.fromkeys(steps[name] for name in named if steps.get(name, PLAIN) != PLAIN))


def step_of(worker: type) -> Probe:
    """A row for a worker that the table does not know: its step only."""
    target = f"{worker.__module__}.{worker.__qualname__}.forward_batch_generation"
    return Probe("unlisted", "step", "step", target, OLDEST, None)
