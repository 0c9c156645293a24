"""Names of kernels without what changes from build to build, and of ranges without what changes from call to call."""

from __future__ import annotations

import re

from .shortnames import short_name

TYPE = re.compile(r"^(bf16|fp?(16|32|64|8)|tf32|u?int(8|4|32|64)|e\dm\d|stage\d|pass\d)$")
"""Words with a digit that say what is computed: kept."""

BUILD = re.compile(
    r"^(\d+(x\d+)*|v\d*|h|sm\d+a?|ampere|hopper|ada|turing|volta|blackwell|coop[ab]?|[nt]{2,3}|splitk\d*|stages"
    r"|warpspecialized\w*|align\d+|ldg\d+|f2f|kernel)$"
)
"""Words that say how a kernel was built: tiles, cluster shapes, rasters, layouts, pipelines."""

WORDS = re.compile(r"[_\s:.,<>()=-]+")
DIGITS = re.compile(r"\d+(x\d+)*")
FIELD = re.compile(r",\s*(seq|op_id|sizes|strides|input_op_ids)\s*=\s*(\[.*?\](?=,\s*\w+\s*=|\s*$)|[^,]*)")
"""What PyTorch's ``record_function`` and ``emit_nvtx`` add to the name of an operator."""

COUNTER = re.compile(r"(\s*#\s*|\s+)\d+$")
MANGLED = re.compile(r"^_Z\w*?(\d+)([A-Za-z_]\w*)")


def kernel_key(name: str) -> str:
    """What two builds of one kernel have in common: ``nvjet_tst_64x8_64x16_4x1_v_bz_TNT`` → ``nvjet tst bz``."""
    words = [_word(word) for word in WORDS.split(_plain(short_name(name)).lower())]
    kept = [word for word in words if word]
    return " ".join(kept) or name.strip().lower()


def range_key(text: str) -> str:
    """A range's name each time: ``aten::mm, seq = 7`` → ``aten::mm``, ``ProfilerStep#12`` → ``ProfilerStep``."""
    return COUNTER.sub("", FIELD.sub("", text).strip()) or text


def _plain(name: str) -> str:
    """The function's own name where ``name`` is still mangled (Itanium: length, then as many letters)."""
    found = MANGLED.match(name)
    return found[2][: int(found[1])] if found else name


def _word(word: str) -> str:
    if TYPE.match(word):
        return word
    return "" if BUILD.match(word) else DIGITS.sub("", word)
