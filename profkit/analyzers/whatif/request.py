"""What is asked: which levers to pull, and how far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from .links import LINKS, Link

FREE = "free"


@dataclass(frozen=True, slots=True)
class Request:
    """One or several levers; what is ``None`` or false stays as recorded. ``drafter`` is a factor, 0 for free."""

    accept_len: float | None = None
    block_size: int | None = None
    drafter: float | None = None
    link: Link | None = None
    collective: str | None = None
    graphs: bool = False
    align_launches: bool = False
    overlap_draft: bool = False

    @property
    def levers(self) -> tuple[str, ...]:
        """The levers that are pulled, in the order of the fields."""
        values = ((one.name, getattr(self, one.name)) for one in fields(self))
        return tuple(name for name, value in values if value is not None and value is not False)

    def each(self) -> Iterator[Request]:
        """One request for each lever."""
        for name in self.levers:
            yield Request(**{name: getattr(self, name)})

    def only(self, *levers: str) -> Request:
        """The request without all other levers."""
        return Request(**{name: getattr(self, name) for name in self.levers if name in levers})

    def without(self, *levers: str) -> Request:
        """The request without ``levers``."""
        return self.only(*(name for name in self.levers if name not in levers))

    @property
    def name(self) -> str:
        """The levers in words, such as ``free drafter + link nvlink4``."""
        return " + ".join(_words(name, getattr(self, name)) for name in self.levers)


def _words(lever: str, value: object) -> str:
    if lever == "drafter":
        return "free drafter" if value == 0 else f"drafter × {value:g}"
    words = {
        "accept_len": f"accept length {value:.3g}" if isinstance(value, float) else "",
        "block_size": f"block size {value}",
        "link": f"link {value}",
        "collective": f"{value} all-reduce",
        "graphs": "CUDA graphs",
        "align_launches": "launches aligned",
        "overlap_draft": "draft beside verify",
    }
    return words[lever]


def parse_drafter(text: str) -> float:
    """A factor on the drafter's cost; raises ``ValueError`` where ``text`` is none."""
    factor = 0.0 if text == FREE else float(text)
    if not 0 <= factor <= 100:
        raise ValueError(f"'{text}' is no factor from 0 to 100")
    return factor


def parse_link(text: str) -> Link:
    """A link by its name, or as GB/s of one direction and, if known, µs of latency; raises ``ValueError``."""
    if text in LINKS:
        return LINKS[text]
    rate, comma, latency = text.partition(",")
    gigabytes, micros = float(rate), float(latency) if comma else None
    if not 0 < gigabytes < 1e6 or (micros is not None and not 0 <= micros < 1e6):
        raise ValueError(f"'{text}' is no bandwidth and latency of a link")
    name = f"{gigabytes:g} GB/s"
    return Link(f"{name}, {micros:g} µs" if micros is not None else name, gigabytes * 1e9, latency_ns=_ns(micros))


def _ns(micros: float | None) -> float | None:
    return None if micros is None else micros * 1e3
