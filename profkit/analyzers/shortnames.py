"""Kernel names that fit on a screen: no return type, namespaces, template arguments or parameters."""

from __future__ import annotations

import re

GENERIC = re.compile(
    r"^(\w*elementwise_kernel\w*|reduce_kernel|multi_tensor_apply_kernel|Kernel2?|device_kernel|kernel"
    r"|GemmUniversal|Device(Scan|Reduce|Radix\w*|Select\w*|Segmented\w*)\w*Kernel|\w*_single_tile_kernel)$"
)
"""Names that say nothing without what they were instantiated with."""

MEANING = re.compile(
    r"\b(?!gpu_)(\w+?)(?:_kernel_cuda|_kernel_impl|_cuda_out|_cuda_scatter_gather)"
    r"|\b(?!(?:[AB]?Unary|(?:Unary|Binary)Op)Functor\b)(\w*Functor\w*|(?!Reduce)\w+Ops)\b"
    r"|\b(cutlass_\w+|Flash\w+|\w*[Gg]emm\w+)"
)
SHAPED = re.compile(r"<[^<>]*>")
COPY = re.compile(r"^(memcpy|memset)\b", re.IGNORECASE)
UNNAMED = re.compile(r"(<unnamed>|\(anonymous namespace\)|\{anonymous\})::")


def short_name(name: str) -> str:
    """The function's own name; for generic kernels also what they compute: ``elementwise_kernel · direct_copy``."""
    if COPY.match(name):
        return name.split(" (")[0]
    if name.startswith("_Z") or not name:
        return name
    text = UNNAMED.sub("", name)
    base = _base(text)
    if not GENERIC.match(base):
        return base
    meaning = _meaning(text)
    return f"{base} · {meaning}" if meaning and meaning != base else base


def _base(text: str) -> str:
    flat, before = text, ""
    while flat != before:
        before, flat = flat, SHAPED.sub("", flat)
    head = flat.split("(")[0].split("<")[0].strip()
    called = "(" in flat or head.startswith("void ")
    word = head.split(" ")[-1] if called else head
    return word.rsplit("::", 1)[-1] or text


def _meaning(text: str) -> str:
    inside = text[text.find("<") + 1 :] if "<" in text else ""
    found = MEANING.search(inside)
    if found is None:
        return ""
    return str(found[found.lastindex or 0]).removeprefix("_")
