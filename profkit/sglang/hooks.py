"""The around-hooks, one for each kind of probe: ``hook(original, *args, **kwargs)``, as SGLang's registry calls them.

A hook calls ``original`` exactly once with what it was given, returns what it returns and lets through what it
raises. Its own work cannot raise (see ``stack``), and outside a step it is a test and the call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .modules import ModuleRecorder
from .probes import PLAIN, Probe
from .stack import ACCEPT, DRAFT, TARGET, RangeStack
from .windows import Windows

Original = Callable[..., Any]
Hook = Callable[..., Any]

UNWRAPPABLE = (
    (inspect.iscoroutinefunction, "a coroutine"),
    (inspect.isasyncgenfunction, "an asynchronous generator"),
    (inspect.isgeneratorfunction, "a generator"),
)


def why_not(function: object) -> str | None:
    """Why ``function`` cannot have a range: its body runs after the call, interleaved with others."""
    if isinstance(function, type) or not callable(function):
        return "it is no function"
    return next((f"it is {what}" for is_one, what in UNWRAPPABLE if is_one(function)), None)


def step_hook(stack: RangeStack, speculative: bool) -> Hook:
    """A step around a worker's ``forward_batch_generation(batch, …)``; none inside another.

    A speculative worker calls those of the target's and the drafter's workers.
    """
    opened, enter, leave = stack.open, stack.enter_step, stack.leave

    def step(original: Original, *args: Any, **kwargs: Any) -> Any:
        texts = opened.texts
        if texts:
            return original(*args, **kwargs)
        batch = args[1] if len(args) > 1 else kwargs.get("batch")
        depth = enter(texts, batch if batch is not None else _other_batch(args, kwargs), speculative)
        try:
            return original(*args, **kwargs)
        finally:
            leave(texts, depth)

    return step


def _other_batch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The batch under its older name, or the forward batch where a pipeline stage is given only that."""
    batch = kwargs.get("model_worker_batch")
    if batch is not None:
        return batch
    return args[2] if len(args) > 2 else kwargs.get("forward_batch")


def forward_hook(stack: RangeStack) -> Hook:
    """``target`` or ``draft`` around ``ModelRunner.forward``; ``accept`` follows the target's in a step that drafts."""
    opened, enter, leave = stack.open, stack.enter, stack.leave

    def forward(original: Original, *args: Any, **kwargs: Any) -> Any:
        texts = opened.texts
        if not texts:
            return original(*args, **kwargs)
        try:
            name = DRAFT if args[0].is_draft_worker else TARGET
        except (AttributeError, IndexError):
            name = TARGET
        depth = enter(texts, name)
        try:
            return original(*args, **kwargs)
        finally:
            leave(texts, depth)
            if name is TARGET and texts.drafts:
                enter(texts, ACCEPT)

    return forward


def range_hook(stack: RangeStack, name: str) -> Hook:
    """The range ``name`` around a function, inside a step."""
    opened, enter, leave = stack.open, stack.enter, stack.leave

    def ranged(original: Original, *args: Any, **kwargs: Any) -> Any:
        texts = opened.texts
        if not texts:
            return original(*args, **kwargs)
        depth = enter(texts, name)
        try:
            return original(*args, **kwargs)
        finally:
            leave(texts, depth)

    return ranged


def load_hook(recorder: ModuleRecorder, windows: Windows) -> Hook:
    """Learn a model runner once its model is loaded, and be ready for the graphs that are captured next."""

    def load(original: Original, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        recorder.loaded(args[0] if args else None)
        windows.prepare()
        return result

    return load


def graph_hook(recorder: ModuleRecorder) -> Hook:
    """Note the modules of a graph while ``capture_one(shape_key or batch size, …)`` captures it."""

    def graph(original: Original, *args: Any, **kwargs: Any) -> Any:
        recorder.begin(args[1] if len(args) > 1 else kwargs.get("shape_key", kwargs.get("bs")))
        try:
            return original(*args, **kwargs)
        finally:
            recorder.end()

    return graph


def moment_hook(recorder: ModuleRecorder, name: str) -> Hook:
    """Note ``name`` around code of a graph that is no module."""

    def moment(original: Original, *args: Any, **kwargs: Any) -> Any:
        recorder.enter(name)
        try:
            return original(*args, **kwargs)
        finally:
            recorder.leave(name)

    return moment


def worker_hook(chosen: Callable[[Any], None]) -> Hook:
    """Tell ``chosen`` which speculative worker the server has picked, before the server makes one."""

    def worker(original: Original, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        chosen(result)
        return result

    return worker


def open_hook(windows: Windows) -> Hook:
    """Open a window once ``start_profile(self, …)`` of SGLang's profiler has started."""

    def opened(original: Original, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        windows.open(args[0] if args else None)
        return result

    return opened


def close_hook(windows: Windows) -> Hook:
    """Close the window before SGLang's profiler says that it stops: what the window held is written by then."""

    def closed(original: Original, *args: Any, **kwargs: Any) -> Any:
        windows.close()
        return original(*args, **kwargs)

    return closed


def hook_of(
    probe: Probe, stack: RangeStack, recorder: ModuleRecorder, windows: Windows, chosen: Callable[[Any], None]
) -> Hook:
    """The hook for a row of the probe table."""
    match probe.kind:
        case "step":
            return step_hook(stack, speculative=probe.group != PLAIN)
        case "forward":
            return forward_hook(stack)
        case "range":
            return range_hook(stack, probe.name)
        case "load":
            return load_hook(recorder, windows)
        case "graph":
            return graph_hook(recorder)
        case "moment":
            return moment_hook(recorder, probe.name)
        case "worker":
            return worker_hook(chosen)
        case "open":
            return open_hook(windows)
        case "close":
            return close_hook(windows)
