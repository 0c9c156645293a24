"""Naming graph nodes by module: from when nodes were created and which module was captured then, on two clocks."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.analyzers import Attribution, attribute
from profkit.analyzers.borrowed import with_borrowed_modules
from profkit.analyzers.flame import LEVELS, gpu_flame
from profkit.analyzers.layers import layer_figures
from profkit.analyzers.module_names import ModuleName, frames_of
from profkit.analyzers.vocabulary import PHASE
from profkit.traces import ModuleCalls, Trace, load_bundle, open_recordings, save_bundle
from profkit.traces.module_calls import with_module_calls
from profkit.traces.strings import StringTable
from tests.builders import TraceBuilder

TRACES = Path(__file__).parents[2] / "traces"
LAYERS = 12
CLONE, COPY = 10_000, 20_000


@dataclass(frozen=True)
class Call:
    """A module call of a capture: its times are on the process's monotonic clock."""

    name: str
    start: int
    end: int
    depth: int


@dataclass(frozen=True)
class Captured:
    """What a capture leaves: the calls, the creation of each node on that clock, and the module it belongs to."""

    calls: list[Call]
    created: list[int]
    module: list[str | None]


def capture(seed: int, begin: int) -> Captured:
    """A model of embedding, layers (a norm, an attention of two kernels, an all-reduce of the layer itself), and head.

    The rotary embedding is shared by all layers and goes by the name that it has in the first.
    """
    random = np.random.default_rng(seed)
    now = begin
    calls: list[Call] = []
    created: list[int] = []
    module: list[str | None] = []

    def wait() -> int:
        nonlocal now
        now += int(random.integers(15_000, 90_000))
        return now

    def kernel(name: str | None) -> None:
        created.append(wait())
        module.append(name)

    def leaf(name: str, kernels: int, depth: int, shown: str | None = None) -> None:
        start = wait()
        for _ in range(kernels):
            kernel(name)
        calls.append(Call(shown or name, start, wait(), depth))

    kernel(None)
    root = wait()
    leaf("model.embed_tokens", 1, 1)
    for layer in range(LAYERS):
        start, name = wait(), f"model.layers.{layer}"
        leaf(f"{name}.input_layernorm", 1, 2)
        leaf(f"{name}.self_attn", 2, 2)
        leaf(f"{name}.rotary_emb", 1, 2, shown="model.layers.0.rotary_emb")
        kernel(name)
        calls.append(Call(name, start, wait(), 1))
    calls.append(Call("model", root, wait(), 0))
    leaf("logits_processor", 2, 0)
    return Captured(calls, created, module)


def recording(graphs: list[Captured], replayed: int, offset: int, clones: int = 1) -> tuple[Trace, list[str | None]]:
    """A trace in which graph ``replayed`` was launched, ``clones`` times cloned, with ``offset`` between the clocks."""
    builder = TraceBuilder().rank(0).range(0, 10_000_000, "step:decode bs=1").range(10, 9_000_000, "target")
    for number, graph in enumerate(graphs):
        last = max(graph.created) - offset
        for place, created in enumerate(graph.created):
            node = number * 1_000_000 + place
            builder.graph_node(node, -1, created - offset)
            for copy in range(1, clones + 1):
                builder.graph_node(node + copy * CLONE, node + (copy - 1) * CLONE, last + 1_000 * copy + place)
    builder.call(100, 200, "cudaGraphLaunch")
    for place in range(len(graphs[replayed].created)):
        at = 1_000 + 100 * place
        builder.node("gemm", at, at + 60, node=replayed * 1_000_000 + place + clones * CLONE)
    trace = builder.trace()
    return replace(trace, **module_calls(trace, graphs)), graphs[replayed].module


def module_calls(trace: Trace, graphs: list[Captured]) -> dict[str, object]:
    strings = StringTable()
    strings.ids(trace.strings)
    rows = [(number, call) for number, graph in enumerate(graphs) for call in graph.calls]
    rows.sort(key=lambda row: row[1].end)
    count = len(rows)
    calls = ModuleCalls(
        pid=np.full(count, 100),
        tid=np.full(count, 4711),
        graph=np.array([number for number, _ in rows]),
        batch_size=np.array([8 >> number for number, _ in rows]),
        role=strings.ids(["target"] * count),
        start=np.array([call.start for _, call in rows]),
        end=np.array([call.end for _, call in rows]),
        depth=np.array([call.depth for _, call in rows]),
        name=strings.ids(call.name for _, call in rows),
    )
    return {"module_calls": calls, "strings": strings.freeze()}


def found(trace: Trace) -> list[str | None]:
    modules = attribute(trace).modules
    order = np.argsort(trace.ops.start)
    return [modules.names[number] if number >= 0 else None for number in modules.of_op[order].tolist()]


GRAPHS = [capture(seed, 1_000_000_000 * (seed + 1)) for seed in range(3)]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2), st.integers(-(10**15), 10**15), st.integers(1, 3))
def test_every_node_has_the_module_that_was_captured(replayed: int, offset: int, clones: int) -> None:
    trace, expected = recording(GRAPHS, replayed, offset, clones)
    assert found(trace) == expected
    assert attribute(trace).modules.unknown is None


def test_modules_of_another_model_are_not_believed() -> None:
    trace, _ = recording([GRAPHS[0]], 0, 12_345)
    other = replace(trace, **module_calls(trace, [capture(99, 5_000)]))
    modules = attribute(other).modules
    assert modules.names == () and "fits" in (modules.unknown or "")
    assert layer_figures(attribute(other), 0).unknown == modules.unknown


def test_without_the_record_of_captures_nothing_is_named() -> None:
    trace, _ = recording(GRAPHS, 0, 0)
    modules = attribute(replace(trace, module_calls=ModuleCalls())).modules
    assert modules.names == () and "which modules" in (modules.unknown or "")


def test_layers_sum_to_the_phase() -> None:
    trace, expected = recording(GRAPHS, 1, 77)
    figures = layer_figures(attribute(trace), 0)
    table = {row.kind: (row.layers, row.ops, row.sum_ns) for row in figures.kinds}
    assert table == {
        "input_layernorm": (LAYERS, LAYERS, 60 * LAYERS),
        "self_attn": (LAYERS, 2 * LAYERS, 120 * LAYERS),
        "rotary_emb": (LAYERS, LAYERS, 60 * LAYERS),
        "": (LAYERS, LAYERS, 60 * LAYERS),
        "model.embed_tokens": (0, 1, 60),
        "logits_processor": (0, 2, 120),
        None: (0, 1, 60),
    }
    assert sum(row.sum_ns for row in figures.kinds) == 60 * len(expected)
    layers = [(row.layer, row.ops, row.sum_ns) for row in figures.layers]
    assert layers == [*((n, 5, 300) for n in range(LAYERS)), (None, 4, 240)]


def test_the_flame_graph_has_a_level_for_modules() -> None:
    flame = gpu_flame(attribute(recording(GRAPHS, 0, 5)[0]), 0)
    flame.check()
    modules = [row for row in range(len(flame.level)) if LEVELS[flame.level[row]] == "module"]
    labels = {flame.strings[flame.label[row]]: int(flame.total_ns[row]) for row in modules}
    assert labels["layers.*"] == 300 * LAYERS and labels["self_attn"] == 120 * LAYERS
    plain = gpu_flame(attribute(recording(GRAPHS, 0, 5)[0]), 0, modules=False)
    assert "module" not in {LEVELS[level] for level in plain.level.tolist()}


def test_eager_launches_are_named_by_ranges_that_name_modules() -> None:
    """As SGLang's layer markers do; the innermost name counts, and other ranges within it do not."""
    builder = TraceBuilder().rank(0).range(0, 1_000, "step:decode bs=1").range(1, 999, "target")
    builder.range(10, 500, "{'Module': 'model.layers.3.mlp', 'Inputs': [1, 2]}").range(20, 60, "aten::mm")
    builder.launch(30, 40, "gemm", 100, 200).launch(70, 80, "gemm", 200, 300).launch(600, 610, "gemm", 700, 800)
    assert found(builder.trace()) == ["model.layers.3.mlp", "model.layers.3.mlp", None]


def test_stacks_of_one_model_are_told_apart() -> None:
    """A model with an encoder and a decoder has two layers of each number."""
    builder = TraceBuilder().rank(0).range(0, 1_000, "step:decode bs=1").range(1, 999, "target")
    for at, stack in ((100, "encoder"), (200, "decoder")):
        builder.range(at, at + 50, f"model.{stack}.layers.0.mlp").launch(at + 10, at + 20, "gemm", at + 30, at + 80)
    figures = layer_figures(attribute(builder.trace()), 0)
    assert {row.kind for row in figures.kinds} == {"model.encoder.layers.*.mlp", "model.decoder.layers.*.mlp"}
    assert [(row.stack, row.layer) for row in figures.layers] == [
        ("model.decoder.layers", 0), ("model.encoder.layers", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "layer", "kind", "stack", "frames"),
    [
        ("model.layers.12.mlp.gate", 12, "mlp.gate", "model.layers", ("layers.*", "mlp", "gate")),
        ("layers.0", 0, "", "layers", ("layers.*",)),
        ("layers.3.mlp.experts.7.w1", 3, "mlp.experts.7.w1", "layers", ("layers.*", "mlp", "experts.*", "w1")),
        ("lm_head", None, "lm_head", "", ("lm_head",)),
        ("model", None, "model", "", ("model",)),
    ],
)
def test_names(text: str, layer: int | None, kind: str, stack: str, frames: tuple[str, ...]) -> None:
    assert ModuleName.of(text) == ModuleName(layer, kind, stack)
    assert frames_of(text) == frames


def test_a_graph_captured_in_pieces_is_named() -> None:
    """Each piece is instantiated before the next one is captured."""
    trace, expected = recording([GRAPHS[0]], 0, 555)
    table, nodes = trace.graph_nodes, GRAPHS[0].created
    original = np.flatnonzero(table.node < CLONE)
    created = table.created.copy()
    for cut in range(0, len(nodes), 20):
        last = created[original[min(cut + 19, len(nodes) - 1)]]
        clones = np.flatnonzero((table.node >= CLONE + cut) & (table.node < CLONE + cut + 20))
        created[clones] = last + 1 + np.arange(len(clones))
    assert found(replace(trace, graph_nodes=replace(table, created=created))) == expected


def test_captures_of_two_threads_at_a_time_are_not_confused() -> None:
    """nsys and the plugin agree on threads, and each thread's nodes are those of its own capture."""
    graphs = [GRAPHS[0], capture(7, GRAPHS[0].calls[-1].start - 2_000_000)]
    trace, expected = recording(graphs, 0, 99)
    tid = np.where(trace.graph_nodes.node >= 1_000_000, 4712, 4711)
    calls = trace.module_calls
    both = replace(
        trace,
        graph_nodes=replace(trace.graph_nodes, tid=tid),
        module_calls=replace(calls, tid=np.where(calls.graph == 1, 4712, 4711)),
    )
    assert found(both) == expected


def test_clones_that_go_round_in_circles_end() -> None:
    trace, _ = recording([GRAPHS[0]], 0, 0)
    table = trace.graph_nodes
    circle = replace(table, original_node=np.where(table.node < CLONE, table.node + CLONE, table.original_node))
    assert attribute(replace(trace, graph_nodes=circle)).modules.names == ()


# -- on disk -----------------------------------------------------------------------------------------------------------


def test_a_bundle_keeps_module_calls(tmp_path: Path) -> None:
    trace, expected = recording(GRAPHS, 2, 31)
    save_bundle(trace, tmp_path / "b")
    assert found(load_bundle(tmp_path / "b")) == expected


def test_a_damaged_record_of_captures_is_a_warning(tmp_path: Path) -> None:
    trace, _ = recording(GRAPHS, 0, 0)
    trace = replace(trace, module_calls=ModuleCalls())
    for damage in (b"", b"no gzip", gzip.compress(b'{"graph": 1}'), gzip.compress(b"{")[:-4]):
        (tmp_path / "modules-100.jsonl.gz").write_bytes(damage)
        read = with_module_calls(trace, tmp_path)
        assert not len(read.module_calls)
        assert damage == b"" or "no record of module calls" in read.notes_of("warning")[0]


# -- recorded ----------------------------------------------------------------------------------------------------------


def figures_of_phases(attribution: Attribution, device: int) -> dict[str, int]:
    """The sums of durations of each forward phase."""
    ops = attribution.trace.ops
    mine = {
        phase: (ops.device == device) & (attribution.phase == PHASE[phase]) for phase in ("draft", "verify", "decode")
    }
    return {phase: int((ops.end - ops.start)[rows].sum()) for phase, rows in mine.items()}


@pytest.mark.parametrize(
    ("name", "target", "drafter"),
    [("tp1/c1", 36, 0), ("tp1-dflash/c32", 36, 5), ("ep2/c128", 48, 0), ("ep2-dflash/c1", 48, 6)],
)
def test_recorded_graphs_are_named_whole(name: str, target: int, drafter: int) -> None:
    attribution = attribute(open_recordings(TRACES / name)[0].trace)
    in_graph = attribution.trace.ops.graph_launch >= 0
    assert (attribution.modules.of_op[in_graph] >= 0).all()
    for device in attribution.devices:
        figures = layer_figures(attribution, device)
        for phase, layers in (("draft", drafter), ("verify" if drafter else "decode", target)):
            mine = [row for row in figures.layers if row.phase == phase and row.layer is not None]
            assert len(mine) == layers
            assert all(row.ops % 8 == 0 for row in mine)  # eight steps, the same kernels in each
        for phase, found in figures_of_phases(attribution, device).items():
            for rows in (figures.kinds, figures.layers):
                assert sum(row.sum_ns for row in rows if row.phase == phase) == found


def test_kernels_of_recorded_modules() -> None:
    """Attention runs in ``self_attn.attn`` of every layer, and nowhere else; the experts' products in theirs."""
    attribution = attribute(open_recordings(TRACES / "ep2-dflash/c32")[0].trace)
    strings, ops = attribution.trace.strings, attribution.trace.ops
    for kernel, kind in (("_fwd_kernel", "self_attn.attn"), ("fused_moe_kernel", "mlp.experts")):
        rows = np.flatnonzero((ops.name == strings.index(kernel)) & (ops.graph_launch >= 0))
        names = {attribution.modules.names[number] for number in attribution.modules.of_op[rows].tolist()}
        assert {ModuleName.of(name).kind for name in names} == {kind}
        assert {ModuleName.of(name).layer for name in names if name.startswith("model.")} == set(range(48))


def test_an_eager_recording_borrows_from_the_one_with_graphs() -> None:
    eager, graphs = (attribute(open_recordings(TRACES / f"ep2-dflash/{name}")[0].trace) for name in ("c1-eager", "c1"))
    assert eager.modules.unknown is not None
    borrowed, same = with_borrowed_modules([eager, graphs])
    assert same is graphs and borrowed.modules.borrowed
    tables = [{(r.phase, r.kind): r.ops for r in layer_figures(a, 0).kinds if r.layers} for a in (borrowed, graphs)]
    assert tables[0] == tables[1]
    assert with_borrowed_modules([eager])[0] is eager


@pytest.mark.parametrize("named", ["eager", "graphs", "neither", "both, unlike"])
def test_a_model_that_only_one_names_may_be_the_other_s(named: str) -> None:
    names = {"eager": ("M", ""), "graphs": ("", "M"), "neither": ("", ""), "both, unlike": ("M", "M2")}[named]
    eager, graphs = (
        _of_model(attribute(open_recordings(TRACES / f"ep2-dflash/{name}")[0].trace), model)
        for name, model in zip(("c1-eager", "c1"), names, strict=True)
    )
    assert with_borrowed_modules([eager, graphs])[0].modules.borrowed == (named != "both, unlike")


def test_the_recording_that_names_the_model_is_borrowed_from_first() -> None:
    """Here one without a name, whose kernels are of another model, lies before it."""
    eager, graphs = (
        _of_model(attribute(open_recordings(TRACES / f"ep2-dflash/{name}")[0].trace), "M")
        for name in ("c1-eager", "c1")
    )
    other = attribute(open_recordings(TRACES / "tp1-dflash/c1")[0].trace)
    run = replace(eager.trace.run, model="")
    posing = replace(other, trace=other.trace.with_run(run), devices=dict.fromkeys(eager.devices, other.devices[0]))
    assert with_borrowed_modules([eager, posing, graphs])[0].modules.borrowed


def _of_model(attribution: Attribution, model: str) -> Attribution:
    trace = attribution.trace
    return replace(attribution, trace=trace.with_run(replace(trace.run, model=model)))


def test_modules_are_not_borrowed_from_another_model() -> None:
    eager, other = (
        attribute(open_recordings(TRACES / name)[0].trace) for name in ("ep2-dflash/c1-eager", "tp1-dflash/c1")
    )
    run = eager.trace.run
    posing = replace(other, trace=other.trace.with_run(run), devices=dict.fromkeys(eager.devices, other.devices[0]))
    borrowed = with_borrowed_modules([eager, posing])[0]
    assert borrowed.modules.names == () and "its kernels are not those" in (borrowed.modules.unknown or "")
