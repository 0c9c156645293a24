"""What would make a step shorter: re-played with another link, block, drafter, host, and what that gives."""

from .answer import what_if
from .links import ALGORITHMS, LINKS, Link
from .request import Request, parse_drafter, parse_link
from .result import WhatIf

__all__ = ["ALGORITHMS", "LINKS", "Link", "Request", "WhatIf", "parse_drafter", "parse_link", "what_if"]
