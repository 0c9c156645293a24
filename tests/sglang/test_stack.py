"""Ranges nest and are named as the analyzer expects, whatever the server does between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from profkit.sglang.domain import Domain
from profkit.sglang.hooks import forward_hook, range_hook, step_hook, why_not
from profkit.sglang.stack import RangeStack

EXTEND = SimpleNamespace(is_extend=lambda: True, is_target_verify=lambda: False)
DECODE = SimpleNamespace(is_extend=lambda: False, is_target_verify=lambda: False)
VERIFY = SimpleNamespace(is_extend=lambda: True, is_target_verify=lambda: True)


@dataclass
class Tool:
    """Stands in for NVTX: the nesting as text, such as ``step(target draft)``."""

    text: str = ""
    faults: list[str] = field(default_factory=list)
    broken: bool = False
    no_marks: bool = False
    no_pops: bool = False
    steps: list[tuple[int, bool]] = field(default_factory=list)
    stack: RangeStack = field(init=False)

    def __post_init__(self) -> None:
        domain = Domain(lambda text: partial(self._push, text), self._pop, self._mark, attached=True)
        self.stack = RangeStack(domain, lambda where, error: self.faults.append(f"{where}: {error}"), self.note)

    def note(self, began_ns: int, requests: int, decode: bool, batch: object) -> None:
        self.steps.append((requests, decode))

    def _push(self, message: str) -> None:
        if self.broken:
            raise OSError("no tool")
        self.text += f"{message}("

    def _pop(self) -> None:
        self.text += ")"
        if self.no_pops:
            raise OSError("no tool")

    def _mark(self, message: str, payload: int) -> None:
        if self.no_marks:
            raise OSError("no tool")

    def wrap(self, hook: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: hook(function, *args, **kwargs)

    def step(self, body: Callable[..., Any], speculative: bool = True) -> Callable[..., Any]:
        return self.wrap(step_hook(self.stack, speculative), body)

    def ranged(self, name: str, body: Callable[..., Any] = lambda: None) -> Callable[..., Any]:
        return self.wrap(range_hook(self.stack, name), body)

    def forward(self, drafter: bool = False) -> Any:
        runner = SimpleNamespace(is_draft_worker=drafter)
        return self.wrap(forward_hook(self.stack), lambda runner: "logits")(runner)


def batch(mode: Any, size: int) -> SimpleNamespace:
    return SimpleNamespace(forward_mode=mode, reqs=[None] * size, is_extend_in_batch=False)


@pytest.fixture
def tool() -> Iterator[Tool]:
    tool = Tool()
    yield tool
    assert tool.text.count("(") == tool.text.count(")")
    assert tool.stack.open.texts == []


def test_plain_decode(tool: Tool) -> None:
    tool.step(lambda worker, batch: tool.forward(), speculative=False)(None, batch(DECODE, 7))
    assert tool.text == "step:decode bs=7(target())"


def test_the_batch_of_a_pipeline_stage_is_a_forward_batch(tool: Tool) -> None:
    stage = SimpleNamespace(forward_mode=VERIFY, batch_size=4, seq_lens=[0] * 9)
    tool.step(lambda *args, **kwargs: tool.forward(), speculative=False)(None, batch=None, forward_batch=stage)
    assert tool.text == "step:decode bs=4(target())"


@pytest.mark.parametrize("keyword", ["batch", "model_worker_batch"])
def test_the_batch_by_keyword(tool: Tool, keyword: str) -> None:
    tool.step(lambda *args, **kwargs: None, speculative=False)(None, **{keyword: batch(EXTEND, 1)})
    assert tool.text == "step:prefill bs=1()"


def test_dflash_decode(tool: Tool) -> None:
    def cycle(worker: None, batch: SimpleNamespace) -> None:
        tool.forward(drafter=True)
        tool.ranged("draft_sample")()
        tool.step(lambda worker, batch: tool.forward())(None, batch)
        tool.ranged("accept_sim")()
        tool.ranged("kv_append")()

    tool.step(cycle)(None, batch(DECODE, 32))
    ranges = "prepare()draft()draft_sample()target()accept(accept_sim())kv_append()"
    assert tool.text == f"step:decode bs=32({ranges})"


def test_dflash_up_to_0_5_13_drafts_inside_its_preparation(tool: Tool) -> None:
    def prepare() -> None:
        tool.ranged("kv_append")()
        tool.forward(drafter=True)

    def cycle(worker: None, batch: SimpleNamespace) -> None:
        tool.ranged("prepare", prepare)()
        tool.forward()
        tool.ranged("kv_append")()

    tool.step(cycle)(None, batch(DECODE, 2))
    assert tool.text == "step:decode bs=2(prepare()prepare(kv_append()draft())target()accept()kv_append())"


def test_eagle_decode_has_one_range_for_each_part_of_the_drafter(tool: Tool) -> None:
    def cycle(worker: None, batch: SimpleNamespace) -> None:
        tool.ranged("draft", lambda: [tool.forward(drafter=True) for _ in range(3)])()
        tool.forward()
        tool.ranged("kv_append", lambda: tool.forward(drafter=True))()

    tool.step(cycle)(None, batch(DECODE, 2))
    assert tool.text == "step:decode bs=2(prepare()draft()target()accept()kv_append())"


def test_prefill_has_no_acceptance(tool: Tool) -> None:
    tool.step(lambda worker, batch: (tool.forward(), tool.ranged("kv_append")()))(None, batch(EXTEND, 2))
    assert tool.text == "step:prefill bs=2(target()kv_append())"


def test_a_speculative_worker_prefills_while_another_rank_does(tool: Tool) -> None:
    mixed = batch(DECODE, 2)
    mixed.is_extend_in_batch = True
    tool.step(lambda worker, batch: None)(None, mixed)
    tool.step(lambda worker, batch: None, speculative=False)(None, mixed)
    tool.step(lambda worker, batch: None)(None, batch(DECODE, 2))
    assert tool.text == "step:prefill bs=2()step:decode bs=2()step:decode bs=2(prepare())"


def test_outside_a_step_nothing_is_pushed(tool: Tool) -> None:
    assert tool.forward() == "logits"
    tool.ranged("kv_append")()
    assert tool.text == ""


def test_what_the_server_raises_arrives_unchanged(tool: Tool) -> None:
    error = MemoryError("of the server")

    def fails() -> None:
        raise error

    with pytest.raises(MemoryError) as raised:
        tool.step(lambda worker, batch: (tool.forward(), tool.ranged("kv_append", fails)()))(None, batch(DECODE, 1))
    assert raised.value is error
    assert raised.value.__context__ is None
    assert tool.text == "step:decode bs=1(prepare()target()accept()kv_append())"


def test_what_a_server_catches_closes_its_range(tool: Tool) -> None:
    def cycle(worker: None, batch: SimpleNamespace) -> None:
        with pytest.raises(ZeroDivisionError):
            tool.ranged("kv_append", lambda: 1 / 0)()
        tool.forward()

    tool.step(cycle, speculative=False)(None, batch(DECODE, 1))
    assert tool.text == "step:decode bs=1(kv_append()target())"


def test_faults_of_hooks_stay_with_the_plugin(tool: Tool) -> None:
    assert tool.step(lambda worker, batch: "result")(None, "no batch") == "result"
    no_runner = tool.wrap(forward_hook(tool.stack), str)
    assert tool.step(lambda worker, batch: no_runner("no runner"))(None, batch(DECODE, 1)) == "no runner"
    tool.broken = True
    assert tool.step(lambda worker, batch: "result")(None, batch(DECODE, 1)) == "result"
    assert [fault.partition(":")[0] for fault in tool.faults] == ["step", "step"]


def test_a_tool_that_fails_within_a_step(tool: Tool) -> None:
    def cycle(worker: None, batch: SimpleNamespace) -> str:
        tool.broken = True
        return str(tool.forward())

    assert tool.step(cycle, speculative=False)(None, batch(DECODE, 1)) == "logits"
    assert (tool.text, tool.faults) == ("step:decode bs=1()", ["target: no tool"])


def test_a_fault_after_a_step_was_opened_closes_it_and_steps_go_on(tool: Tool) -> None:
    tool.no_marks = True
    assert tool.step(lambda worker, batch: "result")(None, batch(DECODE, 1)) == "result"
    assert tool.stack.open.texts == []
    tool.no_marks = False
    tool.step(lambda worker, batch: tool.forward(), speculative=False)(None, batch(DECODE, 2))
    assert tool.text == "step:decode bs=1()step:decode bs=2(target())"
    assert tool.faults == ["step: no tool"]


def test_a_tool_that_fails_to_close_leaves_nothing_open(tool: Tool) -> None:
    def cycle(worker: None, batch: SimpleNamespace) -> str:
        tool.no_pops = True
        return "result"

    assert tool.step(cycle)(None, batch(DECODE, 1)) == "result"
    assert tool.stack.open.texts == []
    tool.no_pops = False
    tool.step(lambda worker, batch: None, speculative=False)(None, batch(DECODE, 2))
    assert tool.text == "step:decode bs=1(prepare())step:decode bs=2()"
    assert tool.faults == ["leave: no tool", "close: no tool"]


def test_generators_and_coroutines_pass_through(tool: Tool) -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def later() -> int:
        return 1

    generator, coroutine = tool.ranged("draft", numbers)(), tool.ranged("draft", later)()
    assert list(generator) == [1]
    with pytest.raises(StopIteration, match="1"):
        coroutine.send(None)
    assert [why_not(what) for what in (numbers, later, int, None, print)] == [
        "it is a generator",
        "it is a coroutine",
        "it is no function",
        "it is no function",
        None,
    ]
