"""The presets for eight GPUs with a generated model in place of their own, as far as that can be seen without GPUs."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from profkit.capture import Settings, load_settings, make_plan
from profkit.capture.memory import cache_bytes, layer_bytes, layers_that_fit, memory_of
from profkit.capture.models import drafter_config, target_config
from profkit.capture.plan import write_models
from profkit.capture.prompts import prompts
from profkit.capture.remarks import memory_in_words, memory_remarks
from profkit.cli import main
from profkit.traces import UsageError, load_sweep
from tests.capture import places
from tests.capture.test_parts import extracted

SHAPE = "qwen3-235b-a22b"
CONC = [1, 32, 64, 128, 256]
H200 = 143_771 * 2**20
FOUR = ("server.tp_size=4", "server.ep_size=4")

BEFORE = (
    "--host 127.0.0.1 --port 30000 --load-format dummy --skip-tokenizer-init --attention-backend triton "
    "--sampling-backend pytorch --grammar-backend none --disable-prefill-cuda-graph --disable-custom-all-reduce "
    "--enforce-disable-flashinfer-allreduce-fusion --disable-radix-cache "
    "--cuda-graph-bs-decode 1 2 4 8 16 32 64 128 256"
)
TARGET = "--model-path OUT/models/target"
DRAFT = "--speculative-algorithm DFLASH --speculative-dflash-block-size 8"
DRAFTER = "--speculative-draft-model-path OUT/models/drafter"
MOST = "--max-running-requests 256"

TABLE = {
    ("tp8", "on", ()): f"{BEFORE} --tp-size 8 {TARGET}",
    ("ep8", "on", ()): f"{BEFORE} --tp-size 8 --ep-size 8 {TARGET}",
    ("ep4", "on", ()): f"{BEFORE} --tp-size 8 --ep-size 4 {TARGET}",
    ("tp8-dflash", "on", ()): f"{BEFORE} --tp-size 8 {DRAFT} {TARGET} {DRAFTER} {MOST}",
    ("ep8-dflash", "on", ()): f"{BEFORE} --tp-size 8 --ep-size 8 {DRAFT} {TARGET} {DRAFTER} {MOST}",
    ("ep4-dflash", "on", ()): f"{BEFORE} --tp-size 8 --ep-size 4 {DRAFT} {TARGET} {DRAFTER} {MOST}",
    ("tp8-eager", "off", ()): f"{BEFORE} --tp-size 8 {TARGET} --disable-decode-cuda-graph",
    ("ep8-dflash", "off", ()): (
        f"{BEFORE} --tp-size 8 --ep-size 8 {DRAFT} {TARGET} {DRAFTER} --disable-decode-cuda-graph {MOST}"
    ),
    ("ep8-dflash", "on", FOUR): f"{BEFORE} {DRAFT} --tp-size 4 --ep-size 4 {TARGET} {DRAFTER} {MOST}",
}  # fmt: skip


@pytest.mark.parametrize(("name", "graphs", "overrides"), TABLE, ids=str)
def test_the_server_line_of_the_table(
    name: str, graphs: str, overrides: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Word for word, with every argument checked against SGLang's own list."""
    package = extracted("0.5.17", tmp_path)
    monkeypatch.setattr("profkit.capture.plan.find_sglang", lambda: package)
    out = tmp_path / "out"
    settings = load_settings(name, overrides, None, SHAPE)
    plan = make_plan(settings, CONC, out, graphs="off" if graphs == "off" else None)
    line = TABLE[name, graphs, overrides].replace("OUT", str(out))
    assert [one.command for one in plan.passes] == [(sys.executable, "-m", "sglang.launch_server", *line.split())]
    assert not [remark for remark in plan.remarks if "max_running_requests is set to 256" not in remark]
    pcie = {"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}
    assert settings.env == pcie | ({"SGLANG_SIMULATE_ACC_LEN": "3.5"} if "dflash" in name else {})
    assert plan.version == "0.5.17"


def test_the_dry_run_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--config", "ep8-dflash", "--without-weights", f"{SHAPE}:47", "--backend", "torch", "--dry-run"]
    main(["capture", *options, "--conc", "1,256", "-o", str(tmp_path / "out")])
    shown = capsys.readouterr().out
    assert "DFlash with simulated accept length 3.5, tp 8, ep 8, over PCIe, 8 GPUs\n" in shown
    assert f"ep8-dflash: {SHAPE} shapes without weights, 47 layers, " in shown
    assert "\nload            random prompts of 128 tokens, 1024 tokens out, sent as token ids\n" in shown
    assert "\nmemory          weights 28.1 GiB, KV cache of 256 requests 7.5 GiB, on each GPU\n" in shown
    assert "SGLANG_SIMULATE_ACC_LEN=3.5" in shown
    assert "Kimi" not in shown and "trust-remote-code" not in shown
    assert not (tmp_path / "out").exists()


def test_requests_are_random_token_ids() -> None:
    load = load_settings("ep8", without_weights=SHAPE).load
    body = next(prompts(load))
    assert set(body) == {"input_ids"}
    assert len(body["input_ids"]) == 128 and max(body["input_ids"]) < 151_936


def test_the_published_shape() -> None:
    config = target_config(SHAPE)
    wanted = {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 4096, "head_dim": 128,
        "num_hidden_layers": 94, "max_window_layers": 94, "num_attention_heads": 64, "num_key_value_heads": 4,
        "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8,
        "vocab_size": 151936, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "max_position_embeddings": 40960, "rope_theta": 1000000, "tie_word_embeddings": False,
    }  # fmt: skip
    assert {key: config[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("layers", "read"),
    [(94, [1, 19, 37, 55, 73, 91]), (47, [1, 10, 18, 27, 35, 44]), (9, [1, 2, 3, 4, 5, 6])],
)
def test_what_a_cut_model_is_written_as(layers: int, read: list[int], tmp_path: Path) -> None:
    """The drafter's `target_layer_ids` follow, and the record says how many layers there were."""
    settings = load_settings("ep8-dflash", without_weights=f"{SHAPE}:{layers}")
    write_models(make_plan(settings, CONC, tmp_path))
    target, drafter = (
        json.loads((tmp_path / "models" / model / "config.json").read_text()) for model in ("target", "drafter")
    )
    assert target == {**target_config(SHAPE), "num_hidden_layers": layers, "max_window_layers": layers}
    assert drafter["dflash_config"] == {"mask_token_id": 151669, "target_layer_ids": read}
    assert (drafter["num_hidden_layers"], drafter["num_target_layers"], drafter["block_size"]) == (6, layers, 8)
    assert drafter["layer_types"] == ["full_attention"] * 6
    assert (drafter["hidden_size"], drafter["vocab_size"], drafter["num_key_value_heads"]) == (4096, 151936, 4)
    assert settings.record()["dummy"] == {"target": SHAPE, "drafter": True, "layers": layers}


@pytest.mark.parametrize(
    ("name", "given", "overrides", "said"),
    [
        ("ep8", "qwen3-1t", (), "--without-weights: dummy.target: no shape 'qwen3-1t'; use one of qwen3-8b"),
        ("ep8", f"{SHAPE}:", (), "give it as SHAPE or SHAPE:LAYERS, such as qwen3-235b-a22b:47"),
        ("ep8", f"{SHAPE}:-4", (), "give it as SHAPE or SHAPE:LAYERS"),
        ("ep8", f"{SHAPE}:0", (), "--without-weights: dummy.layers: 0 is impossible; give a number from 1 on"),
        ("ep8", f"{SHAPE}:95", (), f"dummy.layers: 95 is impossible; give a number from 1 to 94 for {SHAPE}$"),
        ("ep8-dflash", f"{SHAPE}:8", (), "8 is impossible; give a number from 9 to 94 for .* with a drafter$"),
        ("ep8", SHAPE, ("dummy.layers=many",), "--set dummy.layers: give a whole number, not 'many'"),
        ("ep8", SHAPE, ("server.tp_size=4",), "server.ep_size: 8 does not divide tp_size, which is 4; set both"),
        ("tp8", SHAPE, ("server.tp_size=3",), "server.tp_size: 3 GPUs cannot share the 64 attention heads and 4 KV"),
        ("tp8", SHAPE, ("server.tp_size=6",), "give one of 1, 2, 4, 8, 16, 32, 64$"),
        ("ep8", SHAPE, ("server.model_path=/m",), "server.model_path: --without-weights makes a model of its own"),
        ("ep8-dflash", SHAPE, ("server.speculative_draft_model_path=/m",), "makes a model of its own; give one of"),
    ],
)  # fmt: skip
def test_what_is_refused(
    name: str, given: str, overrides: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=said):
        load_settings(name, overrides, None, given)
    words = shlex.join(f"--set={override}" for override in overrides)
    assert main(["capture", "--config", name, f"--without-weights={given}", *shlex.split(words), "--dry-run"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_another_speculation_has_no_drafter_to_make(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "ep8"\n[server]\nspeculative_algorithm = "EAGLE"\n')
    with pytest.raises(UsageError, match="no drafter for EAGLE can be made; choose a configuration with DFLASH"):
        load_settings(str(file), without_weights=SHAPE)


def test_ones_own_choices_outlive_the_model(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'extends = "ep8-dflash"\ndescription = "Kimi here"\n[server]\nmodel_path = "/m"\nmem_fraction_static = 0.8\n'
        'revision = "r"\n[env]\nSGLANG_SIMULATE_ACC_LEN = "2.5"\n[load]\noutput_len = 512\n'
    )
    settings = load_settings(str(file), ["server.speculative_dflash_block_size=4"], None, "qwen3-30b-a3b")
    assert not {"model_path", "revision", "speculative_draft_model_path"} & set(settings.server)
    assert (settings.server["mem_fraction_static"], settings.server["speculative_dflash_block_size"]) == (0.8, 4)
    assert (settings.load.output_len, settings.env["SGLANG_SIMULATE_ACC_LEN"]) == (512, "2.5")
    assert settings.description.startswith("qwen3-30b-a3b shapes without weights, 48 layers, DFlash with")
    assert load_settings(str(file), ["description=ours"], None, "qwen3-30b-a3b").description == "ours"
    one = load_settings("tp1", without_weights="qwen3-8b")
    assert one.description == "qwen3-8b shapes without weights, 36 layers, plain decode, 1 GPU"


def test_a_model_that_is_set_beside_a_real_one_is_not_silently_left_out(tmp_path: Path) -> None:
    settings = load_settings("ep8", [f"dummy.target={SHAPE}"])
    said = f"server.model_path is set, so that dummy.target is not used; `--without-weights {SHAPE}` puts"
    assert any(said in remark for remark in make_plan(settings, [1], tmp_path).remarks)
    assert memory_of(settings, 1) is None


def by_hand(drafter: bool) -> tuple[int, int]:
    """Bytes of weights and of one request's cache of 1,152 tokens (1,160 with a block) on one of eight GPUs."""
    attention = 8 * 128 * 4096 * 2 + 1 * 128 * 4096 * 2  # 8 of 64 query heads (q, o), one KV head of 4, repeated (k, v)
    norms = 2 * 4096 + 2 * 128
    experts = 16 * 3 * 4096 * 1536 + 4096 * 128  # 16 of 128 whole experts, and the router for all of them
    tables = 2 * (151936 // 8) * 4096
    parameters = 94 * (attention + norms + experts) + tables + 4096
    token = 94 * 2 * 128
    if drafter:
        parameters += 6 * (attention + norms + 3 * 4096 * 1536) + 6 * 4096 * 4096 + 2 * 4096
        token += 6 * 2 * 128
    return 2 * parameters, 2 * token * (1160 if drafter else 1152)


@pytest.mark.parametrize("name", ["ep8", "ep8-dflash"])
def test_memory_as_worked_by_hand(name: str) -> None:
    weights, request = by_hand(drafter="dflash" in name)
    need = memory_of(load_settings(name, without_weights=SHAPE), 256)
    assert need is not None
    assert (need.weights, need.cache) == (weights, 256 * request)
    if name == "ep8":
        assert (need.weights, need.cache) == (58_959_617_024, 14_193_524_736)


def test_a_layer_as_worked_by_hand() -> None:
    """The whole model is Qwen's 235 billion parameters; a dense layer has one MLP, and KV heads are shared out."""
    whole = target_config(SHAPE)
    assert layer_bytes(whole, 1) * 94 // 2 + 2 * 151936 * 4096 + 4096 == 235_093_634_560
    assert [cache_bytes(whole, tp) for tp in (1, 2, 4, 8)] == [2048, 1024, 512, 512]
    dense = target_config("qwen3-8b")
    assert layer_bytes(dense, 1) == 2 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 2 * 4096 + 2 * 128 + 3 * 4096 * 12288)
    assert layer_bytes(drafter_config(SHAPE, 8), 8) < layer_bytes(whole, 8)


def settings_of(*overrides: str, name: str = "ep8-dflash", given: str = SHAPE) -> Settings:
    return load_settings(name, overrides, None, given)


def test_how_many_layers_fit() -> None:
    """All of them on eight H200s; on four, as many as leave room for the cache, and one more would not."""
    assert layers_that_fit(settings_of(), 256, H200) == 94
    four = settings_of(*FOUR)
    fit = layers_that_fit(four, 256, H200)
    assert fit is not None and 80 < fit < 94
    room = int(H200 * 0.88)
    needs = [memory_of(four, 256, layers) for layers in (fit, fit + 1)]
    assert [need.total <= room for need in needs if need] == [True, False]
    assert layers_that_fit(settings_of(*FOUR, "server.mem_fraction_static=0.5"), 256, H200) in range(9, fit)
    assert layers_that_fit(settings_of(*FOUR), 256, 2**30) is None


def test_pipeline_stages_hold_a_part_each() -> None:
    need = memory_of(settings_of("server.pp_size=2", name="tp8"), 1)
    whole = memory_of(settings_of(name="tp8"), 1)
    assert need is not None and whole is not None
    assert whole.weights - 4096 * 2 == 2 * (need.weights - 4096 * 2)
    assert whole.cache == 2 * need.cache
    assert memory_of(settings_of("server.dp_size=2", "server.enable_dp_attention=true", name="tp8"), 1) is None


def test_a_model_too_large_is_said_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.capture.plan.least_memory", lambda gpus: H200)
    four = settings_of(*FOUR)
    fit = layers_that_fit(four, 256, H200)
    remarks = make_plan(four, CONC, tmp_path / "out").remarks
    said = "the weights take 110.4 GiB of a GPU's 140.4 GiB, and the KV cache of 256 requests 14.2 GiB, more than the"
    assert [remark for remark in remarks if "weights" in remark] == [
        f"{said} 123.6 GiB that SGLang has for both; {fit} layers fit: --set dummy.layers={fit}"
    ]
    cut = settings_of(*FOUR, f"dummy.layers={fit}")
    assert not [remark for remark in make_plan(cut, CONC, tmp_path / "out").remarks if "weights take" in remark]
    words = memory_in_words(cut, 256, H200)
    assert words is not None and words.endswith("on each GPU, which has 140.4 GiB")
    assert next(memory_remarks(four, 256, 2**30)).endswith("take more GPUs, or fewer or shorter requests")
    assert list(memory_remarks(load_settings("ep8"), 256, 2**30)) == []


OF_A_DUMMY = """
    load_format: A[str, "Weights."] = "auto"
    attention_backend: A[Optional[str], "Attention."] = None
    sampling_backend: A[Optional[str], "Sampling."] = None
    grammar_backend: A[Optional[str], "Grammar."] = None
    skip_tokenizer_init: A[bool, "Token ids only."] = False
    disable_radix_cache: A[bool, "No prefixes."] = False
    disable_prefill_cuda_graph: A[bool, "Eager prefill."] = False
    disable_custom_all_reduce: A[bool, "NCCL."] = False
    enforce_disable_flashinfer_allreduce_fusion: A[bool, "No multicast."] = False
"""


def test_a_whole_capture_in_place_of_a_real_model(place: Path) -> None:
    """Of a model that is nowhere: the generated one is written before the server starts, and the sweep tells it."""
    arguments = place / "sglang" / "srt" / "server_args.py"
    arguments.write_text(arguments.read_text() + OF_A_DUMMY)
    configuration = places.write_configuration(place, ranks=2)
    kept = [line for line in configuration.read_text().splitlines() if line not in ("[dummy]", "drafter = true")]
    real = [line for line in kept if not line.startswith("target = ")]
    configuration.write_text("\n".join(real).replace("[server]", '[server]\nmodel_path = "nowhere/real"'))
    process = places.start_capture(place, configuration, "--without-weights", f"{SHAPE}:47", "--conc", "4")
    _, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    sweep = load_sweep(place / "out")
    assert [(one.concurrency, one.trace, one.failure) for one in sweep.runs] == [(4, "c4", None)]
    record = sweep.settings["configuration"]
    assert record["dummy"] == {"target": SHAPE, "drafter": True, "layers": 47}
    assert record["description"].startswith(f"{SHAPE} shapes without weights, 47 layers, DFlash with simulated accept")
    assert record["env"]["SGLANG_SIMULATE_ACC_LEN"] == "3.5"
    assert "--model-path ./models/target" in sweep.settings["server"][0]
    assert sweep.hardware["p2p_disabled"] is True
    written = json.loads((place / "out" / "models" / "target" / "config.json").read_text())
    assert written["num_hidden_layers"] == 47
