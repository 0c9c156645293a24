"""The cycle's budget in plain steps, a bar for each concurrency, as inline SVG."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from profkit.analyzers.economics.result import Economics, Row
from profkit.analyzers.vocabulary import PHASES as ORDER
from profkit.analyzers.words import duration, phase_name

from .legend import PHASES
from .verdict_scales import Scale

WIDTH, LEFT, RIGHT = 420, 8.0, 410.0
ROOM, LEAST, MOST, TOP = 210.0, 36.0, 62.0, 4.0
"""Of all bars with their labels; of one at least and at most; and above them."""

LABEL, SPACE = 16.0, 8.0
SMALL = 0.015
"""Parts under this share of the longest bar are drawn as one."""

REST = "everything else"
GREY = "#8d95a3"
TEXTURES = {"collectives": "dots", "copies": "stripes", "host gaps": "hatch", "other gaps": "hatch-back"}
"""What is drawn over a phase's colour; its kernels have nothing."""

Cell = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Segment:
    """How one part of a bar is drawn and called."""

    title: str
    colour: str
    texture: str | None


@dataclass(frozen=True, slots=True)
class BudgetFigure:
    """The drawing and what stands in it."""

    drawing: Markup
    segments: tuple[Segment, ...]


def budget_figure(found: Economics) -> BudgetFigure | None:
    """Bars of all concurrencies on one axis; ``None`` where the parts of a cycle are not known."""
    if not all(row.speculative.parts for row in found.rows):
        return None
    bars = [_cells(row) for row in found.rows]
    longest = max(sum(bar.values()) for bar in bars)
    shown = {cell for bar in bars for cell, steps in bar.items() if steps >= SMALL * longest}
    cells = sorted(shown, key=lambda cell: (ORDER.index(cell[0]), cell[1] != "kernels", cell[1]))
    accepted = [row.speculative.accept_len or 0.0 for row in found.rows]
    x = Scale(0.0, 1.03 * max(longest, *accepted), LEFT, RIGHT)
    each = min(MOST, max(LEAST, ROOM / len(bars)))
    drawn = [
        _bar(TOP + each * place, each - LABEL - SPACE, row, bar, cells, x)
        for place, (row, bar) in enumerate(zip(found.rows, bars, strict=True))
    ]
    height = TOP + each * len(bars)
    drawn.append(_axis(x, height))
    title = "Budget of a cycle by concurrency, in plain steps"
    rest = [Segment(REST, GREY, None)] if any(set(bar) - shown for bar in bars) else []
    return BudgetFigure(
        Markup(
            f'<svg viewBox="0 0 {WIDTH} {height + 36:g}" role="img" aria-label="{title}"><title>{title}</title>'
            f"{''.join(drawn)}</svg>"
        ),
        (*map(_segment, cells), *rest),
    )


def _cells(row: Row) -> dict[Cell, float]:
    """The cycle by phase and group, in plain steps: shares of the recorded step times the break-even."""
    found: dict[Cell, float] = defaultdict(float)
    whole = sum(part.ns for part in row.speculative.parts)
    for part in row.speculative.parts:
        found[part.phase, part.group] += row.break_even * part.ns / whole
    return found


def _segment(cell: Cell) -> Segment:
    phase, group = cell
    return Segment(f"{phase_name(phase)}: {group}", PHASES[phase].colour, TEXTURES.get(group))


def _bar(top: float, thick: float, row: Row, bar: dict[Cell, float], cells: Sequence[Cell], x: Scale) -> str:
    at = 0.0
    said = f"{row.break_even:.2f} plain steps, {duration(row.speculative.step_ns)}"
    drawn = [f'<text x="{LEFT}" y="{top + 11:g}"><tspan class="strong">{row.batch_size}</tspan>: {said}</text>']
    named = [(_segment(cell), bar.get(cell, 0.0)) for cell in cells]
    rest = sum(steps for cell, steps in bar.items() if cell not in cells)
    for segment, steps in [*named, (Segment(REST, GREY, None), rest)]:
        drawn.append(_piece(segment, steps, (x(at), x(at + steps)), (top + LABEL, thick)))
        at += steps
    if row.speculative.accept_len:
        mark = f'd="M{x(row.speculative.accept_len)} {top + LABEL - 3:g}v{thick + 6:g}"'
        drawn.append(f'<path class="halo" {mark}/><path class="tick" {mark}/>')
    return "".join(drawn)


def _piece(segment: Segment, steps: float, ends: tuple[float, float], lane: tuple[float, float]) -> str:
    (left, right), (top, thick) = ends, lane
    if right <= left:
        return ""
    place = f'x="{left}" y="{top:g}" width="{right - left:.1f}" height="{thick:g}"'
    over = f'<rect {place} fill="url(#verdict-{segment.texture})"/>' if segment.texture else ""
    title = f"<title>{segment.title}: {steps:.2f} plain steps</title>"
    return f'<g>{title}<rect class="piece" {place} fill="{segment.colour}"/>{over}</g>'


def _axis(x: Scale, top: float) -> str:
    drawn = [f'<path class="axis" d="M{LEFT} {top:g}H{RIGHT}"/>']
    for value in x.ticks():
        anchor = "start" if value == 0 else "middle"
        drawn.append(f'<path class="axis" d="M{x(value)} {top:g}v4"/>')
        drawn.append(f'<text x="{x(value)}" y="{top + 17:g}" text-anchor="{anchor}">{value:g}</text>')
    middle = (LEFT + RIGHT) / 2
    drawn.append(f'<text x="{middle}" y="{top + 33:g}" text-anchor="middle">plain steps of the same concurrency</text>')
    return "".join(drawn)
