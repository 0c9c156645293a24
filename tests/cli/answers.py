"""What a command line answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line on stderr."""
        assert self.err.startswith("profkit: ") and self.err.endswith("\n") and self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err and "unexpected" not in self.err, self.err
        return self.err


Command = Callable[..., Answer]


def tables_of(answer: Answer) -> dict[str, Any]:
    return json.loads(answer.out)["traces"][0]  # type: ignore[no-any-return]
