"""``profkit whatif``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profkit.traces import save_bundle, save_sweep
from profkit.traces.sweep import SCHEMA, Sweep, SweepRun
from tests.analyzers.whatif.recordings import linked, plain, speculative
from tests.builders import TraceBuilder
from tests.cli.answers import Command


@pytest.fixture
def bundles(tmp_path: Path) -> list[Path]:
    """Two concurrencies that draft, and plain decoding at the lower one."""
    paths = []
    for name, trace in (("draft1", speculative(1)), ("draft4", speculative(4)), ("plain1", plain(1))):
        save_bundle(trace, tmp_path / name)
        paths.append(tmp_path / name)
    return paths


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_no_figure_is_cut(command: Command, bundles: list[Path], monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    answer = command("whatif", *bundles)
    assert all(len(line) <= columns for line in answer.out.splitlines()) and "…" not in answer.out


def test_as_text(command: Command, bundles: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    answer = command("whatif", *bundles, "--link", "nvlink4", "--drafter", "free")
    assert answer.status == 0 and not answer.err
    for said in ("link nvlink4", "free drafter", "all together", "pays above", "plain decoding (plain1)", "assumed"):
        assert said in answer.out, said
    assert "! free drafter: it is plain decoding, which does not draft" in answer.out


def test_without_options_every_lever(command: Command, bundles: list[Path]) -> None:
    answer = command("whatif", *bundles)
    assert answer.status == 0 and "What would make a token cheaper, each alone" in answer.out
    assert "! CUDA graphs: no forward of a decode step is launched kernel by kernel" in answer.out
    assert "* at best and at worst: draft beside verify is a bound, no prediction" in answer.out
    assert "× plain: tokens/s over those of plain decoding" in answer.out


def test_a_combination_with_a_bound_is_marked_and_what_it_leaves_out_named(
    command: Command, bundles: list[Path]
) -> None:
    answer = command("whatif", bundles[0], "--overlap-draft", "--drafter", "20", "--graphs")
    assert answer.status == 0
    assert [line for line in answer.out.splitlines() if line.startswith("all but 1 refused *")]
    assert "! CUDA graphs: no forward" in answer.out
    answer = command("whatif", bundles[0], "--overlap-draft", "--drafter", "20", "--json")
    combined = json.loads(answer.out)["recordings"][0]["combined"]
    assert combined["bound"] is True and combined["bound_by"] == ["draft beside verify"]


def test_as_json(command: Command, bundles: list[Path]) -> None:
    answer = command("whatif", *bundles, "--json", "--block-size", 16, "--accept-len", 4)
    found = json.loads(answer.out)
    assert answer.status == 0 and found["schema"] == "profkit.whatif/1"
    assert found["asked"] == ["accept length 4", "block size 16"]
    first, _, last = found["recordings"]
    assert first["baseline"] == "plain1" and first["combined"]["levers"] == ["accept_len", "block_size"]
    assert first["combined"]["then"]["accept_len"] == {"low": 4.0, "usual": 4.0, "high": 4.0}
    assert [refused["lever"] for refused in last["refused"]] == ["accept_len", "block_size"]


def test_inconclusive_where_nothing_can_be_said(command: Command, bundles: list[Path], tmp_path: Path) -> None:
    answer = command("whatif", *bundles[2:], tmp_path / "plain1", "--accept-len", 4)
    assert answer.status == 3 and answer.out.count("! accept length 4: it is plain decoding") == 2
    for noise in ("assumed", "columns", "replay", "Nothing that was asked"):
        assert noise not in answer.out
    save_bundle(TraceBuilder().rank(0).launch(0, 10, "gemm", 20, 30).trace(), tmp_path / "none")
    answer = command("whatif", tmp_path / "none")
    assert answer.status == 3 and "No answer: the recording has no decode step." in answer.out


@pytest.mark.parametrize(
    "option, value, fault",
    [
        (
            "--link",
            "isdn",
            "'isdn' is no link: give pcie3, pcie4, pcie5, pcie6, nvlink4, or GB/s of one direction such",
        ),
        ("--link", "50GB", "such as 50, or with µs of latency such as 50,8"),
        ("--link", "50,x", "'50,x' is no link"),
        ("--link", "50,", "'50,' is no link"),
        ("--drafter", "-1", "'-1' is no factor: give one from 0 to 100 such as 0.5, or 'free'"),
        ("--collective", "star", "'star' is not one of"),
        ("--block-size", "0", "0 is not in the range"),
        ("--accept-len", "0.5", "0.5 is not in the range"),
    ],
)
def test_wrong_values(command: Command, bundles: list[Path], option: str, value: str, fault: str) -> None:
    answer = command("whatif", bundles[0], option, value)
    assert answer.status == 2 and fault in answer.line


@pytest.mark.parametrize("link", ["50", "50,8", "pcie4"])
def test_links_as_the_help_has_them(command: Command, bundles: list[Path], link: str) -> None:
    answer = command("whatif", bundles[0], "--link", link)
    assert answer.status == 0 and f"With link {link.split(',')[0]}" in answer.out


@pytest.mark.parametrize("p2p_disabled", [False, True])
def test_the_sweep_says_that_gpus_talked_over_nvlink(command: Command, tmp_path: Path, p2p_disabled: bool) -> None:
    save_bundle(linked(speculative(), None), tmp_path / "c1")
    hardware = {"topology": [{"gpus": [0, 1], "nvlink": True}], "p2p_disabled": p2p_disabled}
    runs = [SweepRun(concurrency=1, trace="c1", accept_len=3.0)]
    save_sweep(Sweep(schema=SCHEMA, config="made-up", runs=runs, block_size=8, hardware=hardware), tmp_path)
    answer = command("whatif", tmp_path, "--link", "pcie5")
    unknown = "the recording does not say which link its collectives used"
    assert (answer.status, unknown in answer.out) == ((3, True) if p2p_disabled else (0, False))


def test_a_path_that_is_not_there(command: Command, tmp_path: Path) -> None:
    assert "no such file or folder" in command("whatif", tmp_path / "none").line
