from __future__ import annotations

from pathlib import Path

import pytest

from profkit.capture import Settings, load_settings, preset_names
from profkit.capture.settings import LoadSettings, Windows
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
    overrides = ["server.tp_size=2", "server.model_path=/a b", "env.NCCL_ALGO=1", "server.skip_tokenizer_init=false"]
    overrides += ["load.text=true", "server.page-size =16", 'env.A="quoted"', "description=12", "env={B='c'}"]
    settings = load_settings("tp1", overrides, steps=12)
    assert settings.server["tp_size"] == 2
    assert settings.server["model_path"] == "/a b"
    assert settings.server["page_size"] == 16
    assert settings.env == {"NCCL_ALGO": "1", "A": "quoted", "B": "c"}
    assert settings.load.text
    assert settings.description == "12"
    assert settings.windows.steps == 12


@pytest.mark.parametrize("given", ["1234", "12e4", "0012", "1_000"])
def test_a_revision_that_looks_like_a_number_is_kept_to_the_letter(given: str) -> None:
    assert str(load_settings("tp1", [f"server.revision={given}"]).server["revision"]) == given


def test_of_two_names_for_one_argument_the_last_counts(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "tp1"\n[server]\ncuda_graph_bs = [1, 2]\n')
    settings = load_settings(str(file), ["server.cuda_graph_bs_decode=[4]"])
    assert [name for name in settings.server if "cuda_graph_bs" in name] == ["cuda_graph_bs", "cuda_graph_bs_decode"]


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "ep8"\n[server]\nmodel_path = "/m"\n')
    settings = load_settings(str(file))
    assert (settings.name, settings.server["ep_size"], settings.server["model_path"]) == ("mine", 8, "/m")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("server.api_key=x", "server.api_key: leave it out"),
        ("server.api-key=x", "server.api_key: leave it out"),
        ("server.host=0.0.0.0", "server.host: leave it out: capture starts the server on 127.0.0.1"),
        ("server.disable_decode_cuda_graph=true", "give --graphs off"),
        ("server.tp=2", "server.tp: write server.tp_size"),
        ("server.tp_size=two", "server.tp_size: give a whole number, not 'two'"),
        ("server.tp_size=true", "server.tp_size: give a whole number, not True"),
        ("server.port=abc", "server.port: give a whole number, not 'abc'"),
        ("server.port=70000", "server.port: 70000 is impossible; give a number from 1 to 65535"),
        ("server.speculative_dflash_block_size=abc", "give a whole number"),
        ("server.cuda_graph_bs_decode=5", r"give a list of numbers, such as \[1, 2, 4\], not 5"),
        ("server.cuda_graph_bs=[1,-2]", "-2 is impossible"),
        ("server=5", r"server: it is a table, not 5; write server.KEY=VALUE or \[server\]"),
        ("windows=5", "windows: it is a table, not 5"),
        ("env=5", "env: it is a table, not 5"),
        ("env.A.B=1", "env.A: the value of a variable is text"),
        ("tp_size", "give it as KEY=VALUE"),
        ("windows.stepz=3", "windows.stepz: no such setting; did you mean windows.steps"),
        ("steps=3", "steps: no such setting; did you mean windows.steps"),
        ("serve.tp_size=3", "serve: no such setting; did you mean server"),
        ("graphs=maybe", "graphs: give one of on, off, both, not 'maybe'"),
        ("name.x=1", "name: give text"),
        ("name=../../evil", "'../../evil' names a folder too"),
        ("name=..", "names a folder too"),
        ("dummy.target=nonsense", "dummy.target: no shape 'nonsense'; use one of qwen3-8b"),
        ("load.output_len=0", "give a number from 1 on"),
        ("load.prompt_len=1.5", "load.prompt_len: give a whole number, not 1.5"),
        ("windows.steps=1", "windows.steps: 1 is impossible; give a number from 3"),
        ("windows.measure_s=-1", "windows.measure_s: -1.0 is impossible"),
        ("windows.warm_up_s=inf", "windows.warm_up_s: inf is impossible; give a number from 0 to 86400"),
        ("windows.warm_up_s=nan", "nan is impossible"),
        ("load.text=true", "load.text needs a tokenizer, and server.skip_tokenizer_init is set"),
        ("server.model_path=https://u:pw@h/m", "server.model_path: holds what looks like a credential"),
        ("server.model_loader_extra_config={token='pw'}", "server.model_loader_extra_config: holds what looks like"),
    ],
)
def test_impossible_settings(override: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        load_settings("tp1", [override], steps=5)
    assert "pw" not in str(raised.value)


@pytest.mark.parametrize(
    "override",
    ["env.HF_TOKEN=planted", 'env={HF_TOKEN="planted"}', "env.HF_TOKEN =planted", "env.PROXY=http://a:planted@h"],
)
def test_a_secret_for_the_server_is_refused_without_showing_it(override: str) -> None:
    with pytest.raises(UsageError, match=r"looks like a credential.*download the model first") as raised:
        load_settings("tp1", [override])
    assert "planted" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("server = 3", "server: it is a table, not 3"),
        ("[env]\nA = 1", 'env.A: the value of a variable is text; write A = "1"'),
        ("[env]\nA = true", 'write A = "true"'),
        ("[windows]\nmesure_s = 1", "windows.mesure_s: no such setting; did you mean windows.measure_s"),
        ("[dummy]\ndrafter = true", "dummy.target is missing"),
        ('[dummy]\ntarget = "qwen3-8b"\ndrafter = true', "dummy.drafter needs server.speculative_dflash_block_size"),
    ],
)
def test_a_fault_in_a_file_is_named_with_the_file(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=said) as raised:
        load_settings(str(file))
    assert str(file) in str(raised.value) or "dummy.drafter" in said


def test_every_setting_is_in_the_documentation() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "capture.md").read_text()
    fields = [*Windows.__struct_fields__, *(field for field in LoadSettings.__struct_fields__ if field != "seed")]
    assert [field for field in fields if f"    {field} = " not in text] == []


def test_prompts_lie_beside_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "below.toml").write_text('extends = "tp1"\n[load]\nprompts = "p.jsonl"\n')
    (tmp_path / "mine.toml").write_text('extends = "base/below.toml"\n')
    settings = load_settings(str(tmp_path / "mine.toml"))
    assert settings.load.prompts == str(tmp_path / "base" / "p.jsonl")
    assert settings.record()["load"]["prompts"] == "p.jsonl"


@pytest.mark.parametrize(
    ("overrides", "gpus"),
    [
        (["server.dp_size=2"], [0, 1, 2, 3]),
        (["server.dp_size=2", "server.enable_dp_attention=true"], [0, 1]),
        (["server.base_gpu_id=4", "server.gpu_id_step=2"], [4, 6]),
        (["server.device=cpu"], []),
    ],
)
def test_the_gpus_of_a_server(overrides: list[str], gpus: list[int]) -> None:
    assert list(load_settings("ep2", overrides).gpu_ids) == gpus


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
    settings = Settings(name="x", env={"HF_TOKEN": "hf_planted_1", "A": "INFO"}, server={"revision": "hf_planted_1"})
    recorded = settings.record()
    assert recorded["env"] == {"HF_TOKEN": "[removed]", "A": "INFO"}
    assert recorded["server"] == {"revision": "[removed]"}
