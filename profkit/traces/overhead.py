"""What CUPTI calls overhead on a host thread: mostly the recorder's own work, sometimes CUDA's."""

from __future__ import annotations

import re

OVERHEAD = "recorder: "
"""How the names of a recorder's own work begin among host API calls."""

OF_CUDA = re.compile(r"driver compiler|(module|function) loading|command buffer full", re.IGNORECASE)
"""Overhead that the application would have without a recorder too."""


def overhead_name(text: str) -> str:
    """The name of such work among host API calls."""
    return text if OF_CUDA.search(text) else OVERHEAD + text
