from __future__ import annotations

from pathlib import Path

import pytest

from profkit.capture import load_settings, preset_names
from profkit.traces import InputError, UsageError

PRESETS = {
    "tp8-eager": (8, 1, 1), "tp8": (8, 1, 1), "pp8": (1, 8, 1), "ep8": (8, 1, 8), "ep4": (8, 1, 4),
    "tp8-dflash": (8, 1, 1), "ep8-dflash": (8, 1, 8), "ep4-dflash": (8, 1, 4),
    "tp1": (1, 1, 1), "tp1-dflash": (1, 1, 1), "ep2": (2, 1, 2), "ep2-dflash": (2, 1, 2),
}  # fmt: skip


def test_the_presets_are_those_of_the_documentation() -> None:
    assert set(preset_names()) == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_preset(name: str) -> None:
    settings = load_settings(name)
    sizes = tuple(settings.server.get(key, 1) for key in ("tp_size", "pp_size", "ep_size"))
    assert sizes == PRESETS[name]
    assert settings.gpus == sizes[0] * sizes[1]
    assert settings.name == name
    assert settings.description
    assert settings.server.get("speculative_dflash_block_size") == (8 if "dflash" in name else None)
    assert settings.graphs == ("off" if name == "tp8-eager" else "on")


@pytest.mark.parametrize("name", ["ep2", "ep2-dflash"])
def test_two_gpu_presets_keep_to_pcie_and_leave_multicast_off(name: str) -> None:
    settings = load_settings(name)
    assert settings.env["NCCL_P2P_DISABLE"] == "1"
    assert settings.env["NCCL_NVLS_ENABLE"] == "0"
    assert settings.server["enforce_disable_flashinfer_allreduce_fusion"]
    assert settings.server["disable_custom_all_reduce"]


def test_overrides_are_toml_where_they_can_be() -> None:
    overrides = ["server.tp_size=2", "server.model_path=/a b", "env.NCCL_ALGO=1", "load.text=true"]
    settings = load_settings("tp1", overrides, steps=12)
    assert settings.server["tp_size"] == 2
    assert settings.server["model_path"] == "/a b"
    assert settings.env["NCCL_ALGO"] == "1"
    assert settings.load.text
    assert settings.windows.steps == 12


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "ep8"\n[server]\nmodel_path = "/m"\n')
    settings = load_settings(str(file))
    assert (settings.name, settings.server["ep_size"], settings.server["model_path"]) == ("mine", 8, "/m")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["server.api_key=x"], "server.api_key: leave it out"),
        (["tp_size"], "give it as KEY=VALUE"),
        (["windows.stepz=3"], "stepz"),
        (["graphs=maybe"], "maybe"),
        (["name.x=1"], "'name' is a value"),
        (["load.output_len=0"], "give a number from 1"),
    ],
)
def test_impossible_settings(overrides: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_settings("tp1", overrides)


def test_unknown_names_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no configuration 'tp3'.*tp1-dflash"):
        load_settings("tp3")
    with pytest.raises(InputError, match="cannot read"):
        load_settings(str(tmp_path / "absent.toml"))
    broken = tmp_path / "broken.toml"
    broken.write_text("server = [")
    with pytest.raises(InputError, match="no TOML"):
        load_settings(str(broken))
    broken.write_text('extends = "broken.toml"')
    with pytest.raises(InputError, match="extends"):
        load_settings(str(broken))


def test_the_record_holds_no_secret() -> None:
    settings = load_settings("tp1", ["env.HF_TOKEN=hf_planted_1", "env.NCCL_DEBUG=INFO"])
    assert settings.record()["env"] == {"HF_TOKEN": "[removed]", "NCCL_DEBUG": "INFO"}
