"""The requests of a load: random prompts, or those of a JSONL file."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from profkit.traces import InputError

from .settings import LoadSettings

RANDOM_TOKENS = (10, 10_000)
"""Token ids of random prompts: below every vocabulary's size, above its special tokens."""


class _Line(msgspec.Struct):
    text: str | None = None
    input_ids: list[int] | None = None


def prompts(settings: LoadSettings) -> Iterator[dict[str, Any]]:
    """Endless prompts, as the part of a ``/generate`` body that names one; the same sequence for the same seed."""
    given = read_prompts(Path(settings.prompts)) if settings.prompts else []
    source = random.Random(settings.seed)
    while True:
        yield source.choice(given) if given else _random_prompt(settings, source)


def _random_prompt(settings: LoadSettings, source: random.Random) -> dict[str, Any]:
    tokens = [source.randrange(*RANDOM_TOKENS) for _ in range(settings.prompt_len)]
    return {"text": " ".join(map(str, tokens))} if settings.text else {"input_ids": tokens}


def read_prompts(file: Path) -> list[dict[str, Any]]:
    """The prompts of a JSONL file: one ``{"text": ...}`` or ``{"input_ids": [...]}`` a line.

    Raises ``InputError`` naming the line where one is neither.
    """
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise InputError(file, f"cannot read the prompts ({error.strerror})", "check load.prompts") from error
    found = [_prompt(file, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise InputError(file, "holds no prompt", 'write {"text": "..."} or {"input_ids": [...]} on each line')
    return found


def _prompt(file: Path, number: int, raw: bytes) -> dict[str, Any]:
    advice = 'write {"text": "..."} or {"input_ids": [...]} on each line'
    try:
        line = msgspec.json.decode(raw, type=_Line)
    except msgspec.MsgspecError as error:
        raise InputError(file, f"line {number} is no prompt ({error})", advice) from error
    if line.input_ids:
        return {"input_ids": line.input_ids}
    if line.text:
        return {"text": line.text}
    raise InputError(file, f"line {number} has neither text nor input_ids", advice)
