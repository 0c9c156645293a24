"""Rules of a user that name an engine's ranges: what opens a step, what joins one, and how far a step reaches."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from profkit import Recording, analyze, open_trace
from profkit.analyzers import TraceFigures, attribute, load_rules
from profkit.analyzers.attribution import Attribution
from profkit.analyzers.vocabulary import PHASES
from tests.builders import TraceBuilder

REFERENCE = Path(__file__).parents[2] / "traces" / "ep2-dflash" / "c1"

PLUGIN = {
    "^step:prefill": "prefill", "^(prepare|draft|draft_sample)$": "draft", "^target$": "verify",
    "^accept(_sim)?$": "accept", "^kv_append$": "kv_append",
}  # fmt: skip
PART_OF_THEM = {
    "no step": ["^target$", "^accept(_sim)?$", "^kv_append$"],
    "drafter and target": ["^step:prefill", "^target$"],
    "drafter, target and cache": ["^target$", "^kv_append$"],
}


def written(folder: Path, rules: dict[str, str]) -> Path:
    text = "".join(f"[[phase]]\nmatch = '{match}'\nphase = '{phase}'\n" for match, phase in rules.items())
    (folder / "rules.toml").write_text(text, "utf-8")
    return folder / "rules.toml"


@cache
def reference(rules: Path | None = None) -> TraceFigures:
    return analyze([Recording("c1", "c1", open_trace(REFERENCE))], load_rules(rules))[0].traces[0]


def attributed(builder: TraceBuilder, folder: Path, rules: dict[str, str]) -> Attribution:
    return attribute(builder.trace(), load_rules(written(folder, rules)))


@pytest.mark.parametrize("more", [{}, {"^step:decode": "step_other"}], ids=["steps unnamed", "steps named"])
def test_rules_for_the_plugins_own_ranges_give_the_plugins_result(more: dict[str, str], tmp_path: Path) -> None:
    found, plugin = reference(written(tmp_path, PLUGIN | more)), reference()
    assert (found.cycle.phases_source, found.cycle.steps, found.cycle.batch_size) == ("rules", 8, 1)
    for device, own in plugin.devices.items():
        assert found.devices[device].partition_ns == own.partition_ns
        assert found.devices[device].phase_partition_ns == own.phase_partition_ns
        assert found.devices[device].phases == own.phases


@pytest.mark.parametrize("name", PART_OF_THEM)
def test_rules_for_some_of_the_ranges_give_the_same_steps(name: str, tmp_path: Path) -> None:
    """The rest of a step is ``step_other``; a prefill that no rule names is no step, and no decode step either."""
    rules = {match: PLUGIN[match] for match in PART_OF_THEM[name]} | {"^draft$": "draft"}
    found = reference(written(tmp_path, rules))
    assert (found.cycle.steps, found.cycle.batch_size) == (8, 1)
    for device, own in reference().devices.items():
        assert found.devices[device].partition_ns == own.partition_ns
    assert all("-1" not in check.detail for check in found.health.checks)


def test_accept_and_cache_join_the_step_before_them(tmp_path: Path) -> None:
    """No range lies around the steps: one reaches to the next one."""
    builder = TraceBuilder()
    for at in (0, 1_000, 2_000):
        for place, text in enumerate(("small", "large", "taken", "cached")):
            start = at + 100 * place
            builder.range(start, start + 90, f"{text} bs=4" if text == "small" else text)
            builder.launch(start + 1, start + 2, "gemm", start + 10, start + 60)
    rules = {"small": "draft", "large": "verify", "taken": "accept", "cached": "kv_append"}
    found = attributed(builder, tmp_path, rules)
    assert found.plan.steps.start.tolist() == [0, 1_000, 2_000]
    assert found.plan.steps.end.tolist() == [1_000, 2_000, 2_390]
    assert found.plan.steps.batch_size.tolist() == [4, 4, 4] and found.plan.steps.drafts.all()
    assert [PHASES[code] for code in found.phase[:4].tolist()] == ["draft", "verify", "accept", "kv_append"]


def test_a_decode_range_around_others_is_one_step(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in (0, 1_000, 2_000):
        builder.range(at, at + 900, "cycle bs=2").range(at + 10, at + 100, "small").range(at + 200, at + 300, "large")
        builder.launch(at + 20, at + 21, "gemm", at + 30, at + 90).launch(
            at + 210, at + 211, "gemm", at + 220, at + 290
        )
        builder.launch(at + 400, at + 401, "gemm", at + 410, at + 490)
    found = attributed(builder, tmp_path, {"cycle": "decode", "small": "draft", "large": "verify"})
    assert found.plan.steps.end.tolist() == [900, 1_900, 2_900] and found.plan.steps.drafts.all()
    assert [PHASES[code] for code in found.phase[:3].tolist()] == ["draft", "verify", "decode"]


def test_what_lies_in_a_prefill_is_prefill(tmp_path: Path) -> None:
    builder = TraceBuilder().range(0, 900, "prompt").range(10, 200, "large").launch(20, 30, "gemm", 40, 90)
    builder.range(1_000, 1_900, "large").launch(1_010, 1_020, "gemm", 1_030, 1_090)
    found = attributed(builder, tmp_path, {"prompt": "prefill", "large": "verify"})
    assert [PHASES[code] for code in found.phase.tolist()] == ["prefill", "verify"]
    assert found.plan.steps.kind.tolist() == [0, 1]


def test_rules_that_name_nothing_that_opens_a_step(tmp_path: Path) -> None:
    builder = TraceBuilder().range(0, 900, "taken").launch(20, 30, "gemm", 40, 90)
    found = attributed(builder, tmp_path, {"taken": "accept"})
    assert len(found.plan.steps) == 0 and "opens a step" in found.plan.detail
