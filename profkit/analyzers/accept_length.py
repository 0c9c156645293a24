"""An accept length that the user says, against the block that it would have to come from."""

from __future__ import annotations

from collections.abc import Iterable

from profkit.traces import Run, UsageError


def check_accept_len(runs: Iterable[tuple[str, Run]], given: float | None) -> None:
    """Raise ``UsageError`` where the block of a named run yields fewer tokens a step than ``given``."""
    for name, run in runs:
        if given is not None and run.block_size is not None and given > run.block_size:
            block = run.block_size
            raise UsageError(
                f"accept length {given:.3g}: a block of {block} gives no more than {block} tokens a step"
                f" ({name}); give --accept-len 1 to {block}"
            )
