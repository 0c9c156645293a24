"""The verdict's figures over concurrency as inline SVG; colours come from the page's theme."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from profkit.analyzers.economics.outcome import from_to
from profkit.analyzers.economics.result import Economics, Row
from profkit.analyzers.economics.words import batch

from .units import number
from .verdict_scales import BOTTOM, LEFT, RIGHT, TOP, Scale, concurrency_scale, path, spaced, upright

WIDTH, HEIGHT = 420, 252
APART, TICKS_APART = 40.0, 28.0
CROSS, COVER, ROOM = 14.0, 26.0, 60.0
"""How near two points, or a point and a hollow dot, are whose labels step aside; and the room that they need for it."""

LABELS = ((-1, -9.0, -9.0, "end"), (1, 18.0, 9.0, "start"))
"""Of the higher and the lower label: which way it lies of its point, how far, and how far to which side it steps."""

MS = 1e-6


@dataclass(frozen=True, slots=True)
class Line:
    """One line: how it is drawn (a class of the style sheet), and a value for each concurrency as far as known."""

    kind: str
    values: tuple[float | None, ...]


def throughput_figure(found: Economics) -> Markup | None:
    """Measured tokens per second, both axes logarithmic; ``None`` where there are none."""
    plain = tuple(row.plain.tokens_per_s for row in found.rows)
    speculative = tuple(row.speculative.tokens_per_s for row in found.rows)
    lines = [Line("plain", plain), Line("speculative", speculative)]
    return _logarithmic(found.rows, lines, "Throughput over concurrency", "tokens/s")


def cycle_figure(found: Economics) -> Markup | None:
    """Plain step and cycle in milliseconds, both axes logarithmic."""
    plain = tuple(row.plain.step_ns * MS for row in found.rows)
    speculative = tuple(row.speculative.step_ns * MS for row in found.rows)
    lines = [Line("plain", plain), Line("speculative", speculative)]
    return _logarithmic(found.rows, lines, "Time of a plain step and of a cycle over concurrency", "ms")


def break_even_figure(found: Economics) -> Markup:
    """Break-even with its interval against the accept length; where it lies below that, speculation pays."""
    rows = found.rows
    accept = Line("speculative", tuple(row.speculative.accept_len for row in rows))
    cost = Line("cost", tuple(row.break_even for row in rows))
    implied = tuple(row.measured_break_even for row in rows)
    ends = [row.break_even_ci95[1] if row.break_even_ci95 else row.break_even for row in rows]
    ends += [row.measured_break_even_range[1] for row in rows if row.measured_break_even_range]
    top = 1.3 * max(*ends, *(value or 0.0 for value in (*accept.values, *implied)))
    x, y = concurrency_scale([row.batch_size for row in rows]), upright(0.0, top)
    body = [_pays(rows, x, y), _band(rows, x, y), _frame(rows, x, y, "tokens per step and request")]
    body += [_mark(found, x), _whiskers(rows, x, y), _lines(rows, [accept, cost], x, y, implied)]
    return _drawing("Break-even accept length over concurrency, and the accept length", body)


def _logarithmic(rows: Sequence[Row], lines: Sequence[Line], title: str, unit: str) -> Markup | None:
    known = [value for line in lines for value in line.values if value]
    if not known:
        return None
    x = concurrency_scale([row.batch_size for row in rows])
    y = upright(min(known) / 2.2, max(known) * 1.8, logarithmic=True)
    return _drawing(title, [_frame(rows, x, y, unit), _lines(rows, lines, x, y)])


def _drawing(title: str, body: Sequence[str]) -> Markup:
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}"><title>{title}</title>'
    return Markup(f"{head}{''.join(body)}</svg>")


def _frame(rows: Sequence[Row], x: Scale, y: Scale, unit: str) -> str:
    """Grid lines, ticks and what the axes are in."""
    drawn = [f'<text x="2" y="13">{unit}</text>']
    for value in y.ticks():
        at = y(value)
        drawn.append(f'<path class="grid" d="M{LEFT} {at}H{RIGHT}"/>')
        drawn.append(f'<text x="{LEFT - 5}" y="{at + 4}" text-anchor="end">{_round(value)}</text>')
    places = [x(row.batch_size) for row in rows]
    for at in spaced(places, TICKS_APART):
        drawn.append(f'<path class="axis" d="M{places[at]} {BOTTOM}v4"/>')
        drawn.append(f'<text x="{places[at]}" y="{BOTTOM + 17}" text-anchor="middle">{rows[at].batch_size}</text>')
    drawn.append(f'<path class="axis" d="M{LEFT} {BOTTOM}H{RIGHT}"/>')
    middle = (LEFT + RIGHT) / 2
    drawn.append(f'<text x="{middle}" y="{BOTTOM + 34}" text-anchor="middle">concurrency: requests in a step</text>')
    return "".join(drawn)


def _lines(rows: Sequence[Row], lines: Sequence[Line], x: Scale, y: Scale, implied: Sequence[float | None] = ()) -> str:
    """Lines with their points and labels, and as hollow dots what the measured throughput implies."""
    drawn = []
    for line in lines:
        points = [(x(r.batch_size), y(v)) for r, v in zip(rows, line.values, strict=True) if v is not None]
        drawn.append(f'<polyline class="line {line.kind}" points="{path(points)}"/>')
        drawn += [f'<circle class="dot {line.kind}" cx="{at}" cy="{up}" r="4"/>' for at, up in points]
    places = [x(row.batch_size) for row in rows]
    hollow = [None if value is None else y(value) for value in implied] or [None] * len(rows)
    for row, place, up, value in zip(rows, places, hollow, implied, strict=False):
        if up is not None:
            said = f"<title>{value:.2f} by measured throughput{_ends(row)}</title>"
            drawn.append(f'<circle class="hollow" cx="{place}" cy="{up}" r="6.5">{said}</circle>')
    shown = spaced(places, APART)
    rooms = [b - a for a, b in pairwise(places[at] for at in shown)]
    for count, at in enumerate(shown):
        room = min(rooms[max(count - 1, 0) : count + 1], default=WIDTH)
        values = [(line.kind, value) for line in lines if (value := line.values[at]) is not None]
        drawn.append(_values(places[at], values, y, hollow[at], (room >= ROOM and at > 0, room >= ROOM)))
    return "".join(drawn)


def _values(
    place: float, values: Sequence[tuple[str, float]], y: Scale, hollow: float | None, room: tuple[bool, bool]
) -> str:
    """The values at one concurrency: the highest is written above its point, the other below.

    Where lines cross, labels step aside to where none runs; and one steps aside of a ``hollow`` dot, whose value it is
    not: the higher to the left, the lower to the right, where there is ``room``.
    """
    known = sorted(values, key=lambda one: -one[1])
    ups = [y(value) for _, value in known]
    crossed = len(ups) == 2 and ups[1] - ups[0] < CROSS
    drawn = []
    for (kind, value), up, free, (way, shift, aside, anchor) in zip(known, ups, room, LABELS, strict=False):
        covered = hollow is not None and 0 < way * (hollow - up) < COVER
        at, side = (place + aside, anchor) if free and (crossed or covered) else (place, "middle")
        drawn.append(
            f'<text class="value {kind}" x="{at:g}" y="{up + shift:g}" text-anchor="{side}">{_figure(value)}</text>'
        )
    return "".join(drawn)


def _figure(value: float) -> str:
    """Three figures, or all before the point."""
    return number(round(value)) if value >= 100 else f"{value:.{1 if value >= 10 else 2}f}"


def _round(value: float) -> str:
    """A tick, short enough to stay left of the plot in any font."""
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def _pays(rows: Sequence[Row], x: Scale, y: Scale) -> str:
    """All accept lengths above the break-even line."""
    line = [(x(row.batch_size), y(row.break_even)) for row in rows]
    return f'<polygon class="pays" points="{path([*line, (line[-1][0], TOP), (line[0][0], TOP)])}"/>'


def _band(rows: Sequence[Row], x: Scale, y: Scale) -> str:
    known = [(x(row.batch_size), row.break_even_ci95) for row in rows if row.break_even_ci95]
    above = [(at, y(ci[1])) for at, ci in known]
    below = [(at, y(ci[0])) for at, ci in reversed(known)]
    return f'<polygon class="band" points="{path([*above, *below])}"/>' if len(known) > 1 else ""


def _whiskers(rows: Sequence[Row], x: Scale, y: Scale) -> str:
    """From where to where the hollow dots move with the counts before and after the recordings."""
    known = [(x(row.batch_size), row.measured_break_even_range) for row in rows if row.measured_break_even_range]
    drawn = [
        f"M{at - 5:g} {y(ends[0])}h10M{at - 5:g} {y(ends[1])}h10M{at} {y(ends[0])}V{y(ends[1])}" for at, ends in known
    ]
    return "".join(f'<path class="whisker" d="{one}"/>' for one in drawn)


def _ends(row: Row) -> str:
    return f", {from_to(row.measured_break_even_range)} by counts" if row.measured_break_even_range else ""


def _mark(found: Economics, x: Scale) -> str:
    """The concurrency up to which it pays by its steps, which measured throughput may say otherwise."""
    at = found.crossover.estimate.at
    if at is None:
        return ""
    place = x(at)
    beside, anchor = (place - 5, "end") if place > (LEFT + RIGHT) / 2 else (place + 5, "start")
    said = f"by steps: pays up to {batch(at)}"
    label = f'<text class="value" x="{beside:g}" y="{TOP + 10}" text-anchor="{anchor}">{said}</text>'
    return f'<path class="mark" d="M{place} {TOP}V{BOTTOM}"/>{label}'
