"""The report as a file: what is in it, what must never be in it, and how large it gets."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from profkit.analyzers import attribute
from profkit.analyzers.flame import gpu_flame, host_flame
from profkit.analyzers.per_step import budgets
from profkit.reports import legend, units
from profkit.reports.payload import GZIP_ABOVE, embed
from profkit.traces import Run, Trace
from tests.builders import TraceBuilder
from tests.reports.pages import HOSTILE, analysed, inferred, large, page, sized, speculative, whole_graphs
from tests.shared_files import shared

SECTIONS = [
    "verdict", "budget", "flame", "timeline", "collectives", "graphs", "layers", "kernels", "health", "provenance",
    "definitions",
]  # fmt: skip


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the texts of its scripts by id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.text: list[str] = []
        self._inside: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = dict(attrs).get("id") or "page" if tag == "script" else "style" if tag == "style" else None

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside is None:
            self.text.append(data)
        else:
            self.scripts[self._inside] = self.scripts.get(self._inside, "") + data

    @property
    def words(self) -> str:
        """All visible text, white space folded."""
        return " ".join(" ".join(self.text).split())


def data_of(text: str) -> dict[str, Any]:
    """The embedded data of a page."""
    elements = Elements(text)
    encoding = next(attrs["data-encoding"] for tag, attrs in elements.tags if attrs.get("id") == "profkit-data")
    content = elements.scripts["profkit-data"]
    if encoding == "gzip+base64":
        content = gzip.decompress(base64.b64decode(content)).decode()
    data: dict[str, Any] = json.loads(content)
    return data


def test_the_sections_stand_in_their_order() -> None:
    elements = Elements(page(("a", speculative().trace())))
    assert [attrs["id"] for tag, attrs in elements.tags if tag == "section"] == SECTIONS
    assert len({attrs["id"] for _, attrs in elements.tags if attrs.get("id")}) == sum(
        "id" in attrs for _, attrs in elements.tags
    )


def test_the_embedded_columns_are_those_of_the_analyzers() -> None:
    trace = speculative().trace()
    attribution = attribute(trace)
    data = data_of(page(("a", trace), ("b", trace)))
    assert [entry["name"] for entry in data["traces"]] == ["a", "b"]
    for device in (0, 1):
        for kind, flame in (("gpu", gpu_flame(attribution, device)), ("host", host_flame(attribution, device))):
            columns = data["traces"][0]["flames"][str(device)][kind]
            assert columns["total"] == flame.total_ns.tolist()
            assert [columns["strings"][n] for n in columns["name"]] == [flame.strings[n] for n in flame.name]
    timeline = data["traces"][1]["timeline"]
    assert timeline["first"][-1] == len(timeline["start"])
    assert len(timeline["first"]) == len(timeline["lanes"]) + 1
    assert set(map(len, (timeline[name] for name in ("code", "label", "launch", "length", "row", "split")))) == {
        len(timeline["start"])
    }


def test_keys_are_sorted_and_pages_repeat() -> None:
    trace = speculative().trace()
    text = page(("a", trace))
    assert text == page(("a", trace))
    content = Elements(text).scripts["profkit-data"]
    assert content == embed(json.loads(content)).text


def test_long_data_is_compressed_and_comes_back() -> None:
    data = {"names": ["x" * 20] * (GZIP_ABOVE // 20)}
    packed = embed(data)
    assert packed.encoding == "gzip+base64"
    assert len(packed.text) < GZIP_ABOVE // 20
    assert json.loads(gzip.decompress(base64.b64decode(packed.text))) == data


def test_hostile_names_stay_text() -> None:
    trace = speculative(names=HOSTILE).trace()
    text = page((HOSTILE[0], trace), (HOSTILE[3], trace))
    elements = Elements(text)
    assert sum(tag == "script" for tag, _ in elements.tags) == 3
    assert not any(tag in ("b", "img") and "onerror" in attrs for tag, attrs in elements.tags)
    assert all(not name.startswith("on") for _, attrs in elements.tags for name in attrs)
    for name in HOSTILE:
        assert any(name in columns["strings"] for columns in flames(data_of(text)))
    assert "{{ 7 * 7 }}" in elements.words
    raw = elements.scripts["profkit-data"]
    assert "<" not in raw and "\u2028" not in raw


def flames(data: dict[str, Any]) -> list[dict[str, Any]]:
    """All flame graphs of embedded data."""
    return [columns for trace in data["traces"] for pair in trace["flames"].values() for columns in pair.values()]


def test_nothing_is_fetched() -> None:
    text = page(("a", speculative().trace()))
    elements = Elements(text)
    for tag, attrs in elements.tags:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            value = attrs.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, name, value)
    own = elements.scripts["page"] + elements.scripts["style"]
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttpRequest|WebSocket|importScripts|\bimport\b", own)
    policy = next(attrs["content"] for _, attrs in elements.tags if attrs.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_plotly_is_inside() -> None:
    elements = Elements(page(("a", speculative().trace())))
    script = gzip.decompress(base64.b64decode(elements.scripts["plotly"])).decode()
    assert "plotly.js" in script[:200]


def test_unknown_is_never_zero_and_has_a_reason() -> None:
    text = page(("graphs", whole_graphs().trace()))
    words = Elements(text).words
    assert "--cuda-graph-trace=node" in words
    assert "The parts of a step are unknown" in words
    (results, _) = analysed(("graphs", whole_graphs().trace()))
    budget = budgets(*results[0])[0]
    assert budget.parts["gap_host"] is None
    assert re.search(r'<span class="unknown"[^>]*title="[^"]*graph', text)


def test_figures_are_written_for_people() -> None:
    assert (units.ns(-85_000), units.number(-1_234)) == ("\u221285.0\u00a0µs", "\u22121\u202f234")
    assert units.unknown_figures("x", ("collectives.skew_ns", "collectives.transfer_ns")) == (
        "Skew and transfer are unknown."
    )
    assert units.unknown_figures("ranks disagree; skew and transfer are unknown", ("collectives.skew_ns",)) == ""
    assert units.unknown_figures("x", ("some_thing_ns",)) == "Some thing is unknown."
    assert units.unknown_figures("x", ()) == ""


def test_inferred_phases_say_so() -> None:
    text = page(("inferred", inferred().trace()))
    assert text.count('class="inferred"') >= 5
    assert data_of(text)["traces"][0]["inferred"] is True
    titles = [trace["name"] for trace in data_of(text)["charts"]["phases"]["data"]]
    assert any("inferred" in title for title in titles)


def test_sizes_are_drawn_against_bandwidth_or_their_lack_is_said() -> None:
    known = page(("sized", sized()))
    chart = data_of(known)["charts"]["bandwidth-0"]
    assert 65_536 in chart["data"][0]["x"]
    assert chart["layout"]["annotations"][0]["text"] == "link limit 200 GB/s"
    unknown = page(("plain", speculative().trace()))
    assert "bandwidth-0" not in data_of(unknown)["charts"]
    assert "this recording has no message sizes" in Elements(unknown).words


def test_comparisons_show_the_break_even() -> None:
    plain = TraceBuilder().rank(0)
    for at in (0, 40_000, 80_000):
        plain.range(at, at + 30_000, "step:decode bs=2").range(at + 100, at + 20_000, "target")
        plain.launch(at + 1_000, at + 2_000, "gemm", at + 3_000, at + 30_000)
    drafting = speculative(ranks=1).run(Run(accept_len=3.5, accept_len_source="server")).trace()
    words = Elements(page(("plain", plain.trace()), ("dflash", drafting))).words
    assert "Does speculation pay?" in words
    assert "2.50" in words and "3.50" in words and "1.40×" in words and "wins" in words


@pytest.mark.parametrize("trace", [TraceBuilder().trace(), TraceBuilder().rank(0).launch(0, 1, "gemm", 2, 9).trace()])
def test_recordings_without_steps_are_drawn(trace: Trace) -> None:
    assert "no decode step" in Elements(page(("empty", trace))).words.lower() or not len(trace.ops)


def test_parts_of_the_first_chart_sum_to_the_wall_time() -> None:
    results, analysis = analysed(("a", speculative().trace()))
    chart = data_of(page(("a", speculative().trace())))["charts"]["parts"]
    bars = [trace for trace in chart["data"] if trace["type"] == "bar"]
    for place, budget in enumerate(budgets(*results[0])):
        drawn = sum(bar["x"][place] or 0 for bar in bars)
        assert drawn == pytest.approx((budget.wall or 0) * 1e-6, abs=1e-5)
    assert analysis.traces[0].name == "a"


def test_fifty_thousand_ops_fit() -> None:
    assert len(page(("large", large(150_000).trace()))) < 6_000_000


@pytest.mark.parametrize("words", [legend.PARTS, legend.PHASES, legend.CLASSES], ids=["parts", "phases", "classes"])
def test_colours_stay_apart_without_red_or_green(words: dict[str, legend.Entry]) -> None:
    for one, two in itertools.combinations(words, 2):
        for sight in SIGHTS:
            apart = sum((a - b) ** 2 for a, b in zip(_seen(words[one], sight), _seen(words[two], sight), strict=True))
            assert apart**0.5 > 12, (one, two)


SIGHTS = (
    ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
)
"""Full sight, deuteranopia and protanopia as matrices over linear RGB (Machado, Oliveira and Fernandes, 2009)."""
TO_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))


def _seen(entry: legend.Entry, sight: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    """The colour in CIELAB as that sight sees it."""
    values = [int(entry.colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    seen = [min(max(sum(a * b for a, b in zip(row, linear, strict=True)), 0), 1) for row in sight]
    white = (0.95047, 1.0, 1.08883)
    xyz = [sum(a * b for a, b in zip(row, seen, strict=True)) / w for row, w in zip(TO_XYZ, white, strict=True)]
    f = [v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def test_reference_captures_fit_the_budget(tmp_path_factory: pytest.TempPathFactory) -> None:
    from profkit.traces import open_trace

    names = ("ep2-dflash-graph-c1.sqlite.xz", "ep2-dflash-eager-c1.sqlite.xz", "ep2-ar-graph-c1.sqlite.xz",
             "dense8b-dflash-graph-c1.kineto.json.gz")  # fmt: skip
    traces = [(name.split(".")[0], open_trace(shared(f"captures/{name}"))) for name in names]
    text = page(*traces)
    assert len(text.encode()) < 6_000_000
    words = Elements(text).words
    for name, _ in traces:
        assert name in words
