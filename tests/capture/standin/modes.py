"""How the stand-in misbehaves."""

from __future__ import annotations

import os

MODES = set(os.environ.get("STANDIN_MODE", "").split(","))
