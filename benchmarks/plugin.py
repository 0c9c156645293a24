"""What the plugin's hooks cost: ``python -m benchmarks.plugin``.

Each hook is called as SGLang's registry calls it, around an empty function; the figure is nanoseconds above the bare
call. SGLang's wrapper alone, with a hook that only calls, is in every figure. Twice: with no tool attached, and, where
there is an nsys, under it with recording not begun.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from profkit.sglang.domain import open_domain
from profkit.sglang.hooks import forward_hook, range_hook, step_hook
from profkit.sglang.stack import RangeStack
from profkit.sglang.step_clock import StepClock
from profkit.traces.nsys_export import find_nsys

CALLS, REPEATS = 1_000, 200
UNRECORDED = ("-t", "nvtx", "-s", "none", "--cpuctxsw=none", "--capture-range=nvtx", "--nvtx-capture=never@profkit")


def wrapped(original: Callable[..., Any], hook: Callable[..., Any]) -> Callable[..., Any]:
    """``original`` as SGLang's registry leaves it."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return hook(original, *args, **kwargs)

    return wrapper


def cost(hooked: Callable[[], Any], bare: Callable[[], Any]) -> float:
    """Nanoseconds of ``hooked`` above ``bare``, the least of several rounds."""
    least = [min(timeit.repeat(call, number=CALLS, repeat=REPEATS)) for call in (hooked, bare)]
    return (least[0] - least[1]) / CALLS * 1e9


def fails(where: str, error: Exception) -> None:
    """A fault here makes the figures worthless."""
    raise error


def costs(folder: Path) -> dict[str, float]:
    """Nanoseconds a call, by hook; the step clock's file goes into ``folder``."""
    stack = RangeStack(open_domain("nsys"), fails, StepClock(folder / "steps.bin").note)
    target = SimpleNamespace(is_draft_worker=False)
    mode = SimpleNamespace(is_extend=lambda: False, is_target_verify=lambda: False)
    request = SimpleNamespace(origin_input_ids=[1] * 512, output_ids=[1] * 128)
    batch = SimpleNamespace(forward_mode=mode, reqs=[request] * 32, is_extend_in_batch=False)

    def empty(*args: Any) -> None:
        return None

    passing = wrapped(empty, lambda original, *args, **kwargs: original(*args, **kwargs))
    ranged = wrapped(empty, range_hook(stack, "kv_append"))
    forward = wrapped(empty, forward_hook(stack))
    plain = wrapped(empty, step_hook(stack, speculative=False))
    found = {"SGLang's wrapper alone": cost(passing, empty), "range, outside a step": cost(ranged, empty)}
    found["step of a plain worker"] = cost(lambda: plain(None, batch), lambda: empty(None, batch))
    texts = stack.open.texts
    step = stack.enter_step(texts, batch, speculative=False)
    found["range"] = cost(ranged, empty)
    found["forward"] = cost(lambda: forward(target), lambda: empty(target))
    stack.leave(texts, step)
    return found


def show(title: str, found: dict[str, float]) -> None:
    """Print the figures, a line a hook."""
    print(title)
    for name, nanoseconds in found.items():
        print(f"  {name:<24}{nanoseconds:6.0f} ns")


def main() -> None:
    """Measure here, then again under nsys."""
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1:] == ["--unrecorded"]:
            show("under nsys, not recording", costs(Path(folder)))
            return
        show("no tool attached", costs(Path(folder)))
        nsys = find_nsys()
        if nsys is not None:
            report = ("-o", str(Path(folder) / "none"))
            again = (sys.executable, "-m", "benchmarks.plugin", "--unrecorded")
            subprocess.run([str(nsys), "profile", *UNRECORDED, *report, *again], check=False)


if __name__ == "__main__":
    main()
