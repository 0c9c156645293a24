"""Sentences on a terminal: figures stay with their units, whatever the width."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from profkit.reports.prose import in_folder, say

TEXT = (
    "At 128 it is 10.5 % too high: the throughput amounts to a cycle of 91.2 ms where 77.7 ms were timed (+17 %), "
    "at 1.20 TB/s; 8 tokens in 65 ns, 1.012 ± 0.014 times as long."
)
FIGURES = ("10.5 %", "91.2 ms", "77.7 ms", "+17 %", "1.20 TB/s", "65 ns", "1.012 ± 0.014")


def said(text: str, width: int) -> list[str]:
    out = io.StringIO()
    say(Console(file=out, width=width), text)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", range(20, 130))
def test_no_line_breaks_between_a_figure_and_its_unit(width: int) -> None:
    lines = said(TEXT, width)
    assert all(any(figure in line for line in lines) for figure in FIGURES)
    assert " ".join(lines) == TEXT and all(len(line) <= width for line in lines)


def test_words_that_only_begin_like_a_unit_may_break() -> None:
    assert said("it has 8 steps", 9) == ["it has 8", "steps"]


def test_wide_characters_and_markup_are_text() -> None:
    lines = said("[bold]" + "模型 " * 12, 20)
    assert "".join(lines).startswith("[bold]") and all(cell_len(line) <= 20 for line in lines)
    assert not re.search(r"[\ue000-\uf8ff]", "".join(said(TEXT, 40)))


def test_a_sweep_is_named_once() -> None:
    assert in_folder(("run/c1", "run/c1-cupti", "run/c1-torch")) == "c1, c1-cupti, c1-torch of run"
    assert in_folder(("one/c1", "two/c1")) == "one/c1, two/c1"
    assert in_folder(("c1", "c2")) == "c1, c2"
