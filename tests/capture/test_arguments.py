from __future__ import annotations

from pathlib import Path

import pytest

from profkit.capture.arguments import command_line, resolve
from profkit.capture.sglang_source import ServerArguments, read_arguments
from profkit.traces import UsageError

OLD = """
SIZES = ["a", "b"]
class ServerArgs:
    model_path: str
    tp_size: int = 1
    cuda_graph_bs: Optional[List[int]] = None
    disable_cuda_graph: bool = False
"""

NOW = """
SIZES = ["a", "b"]
class Other:
    not_an_argument: int = 0
class ServerArgs:
    model_path: A[str, Arg(help="The model.", aliases=["--model"])]
    tp_size: A[int, "Ranks.", NS("parallel")] = 1
    size: A[Optional[str], Arg(help="Size.", choices=SIZES)] = None
    mode: A[Literal["x", "y"], "Mode."] = "x"
    fp8_gemm_runner_backend: A[str, Arg(help="", cli_name="--fp8-gemm-backend")] = "auto"
    cuda_graph_bs_decode: A[Optional[List[int]], "Sizes."] = None
    options: A[Optional[dict], Arg(help="", type_parser=json.loads)] = None
    disable_decode_cuda_graph: A[bool, "Eager."] = False
    on: A[bool, "A switch that no flag turns off."] = True
    fdfo: A[bool, Arg(help="", action=argparse.BooleanOptionalAction)] = True
    page: A[int, Arg(help="", aliases=["--page-size", "--ps"])] = 1
    ratio: A[float, "Ratio."] = 1.0
    internal: A[bool, Arg(no_cli=True)] = False
    parser_name: A[Optional[str], Arg(no_cli=True)] = None
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--parser-name", choices=list(X))
        parser.add_argument("--cuda-graph-bs", action=Alias, new_flag="--cuda-graph-bs-decode")
        parser.add_argument("--disable-cuda-graph", action=Old, new_flag="--cuda-graph-backend=disabled")
"""

NEWEST = """
class Model(msgspec.Struct):
    model_path: A[str, Arg(help="The model.")]
    size: A[Optional[str], Arg(help="Size.", choices=SIZES)] = None
"""


def package(folder: Path, version: str, main: str, group: str | None = None) -> ServerArguments:
    srt = folder / "srt"
    (srt / "arg_groups" / "fields").mkdir(parents=True)
    (folder / "version.py").write_text(f"__version__ = version = '{version}'\n")
    (srt / "server_args.py").write_text(main)
    if group:
        (srt / "arg_groups" / "fields" / "model.py").write_text(group)
        (srt / "arg_groups" / "choices.py").write_text('SIZES = ["p", "q"]\n')
    return read_arguments(folder)


@pytest.fixture
def now(tmp_path: Path) -> ServerArguments:
    return package(tmp_path, "0.5.17", NOW)


def test_only_what_the_command_line_takes(now: ServerArguments) -> None:
    assert now.version == "0.5.17"
    assert "internal" not in now.fields
    assert "not_an_argument" not in now.fields
    assert "parser_name" in now.fields


def test_command_line(now: ServerArguments) -> None:
    server = {
        "model_path": "/m", "cuda_graph_bs_decode": [1, 2], "disable_decode_cuda_graph": True,
        "fp8_gemm_runner_backend": "x", "options": {"a": 1}, "tp_size": 2,
    }  # fmt: skip
    resolved, renamed = resolve(server, now)
    assert renamed == []
    assert command_line(resolved, now) == [
        "--model-path", "/m", "--cuda-graph-bs-decode", "1", "2", "--disable-decode-cuda-graph",
        "--fp8-gemm-backend", "x", "--options", '{"a": 1}', "--tp-size", "2",
    ]  # fmt: skip


def test_false_is_left_out_where_it_is_the_default(now: ServerArguments) -> None:
    assert command_line({"disable_decode_cuda_graph": False, "fdfo": False}, now) == ["--no-fdfo"]
    assert command_line({"fdfo": True}, now) == ["--fdfo"]


def test_false_of_the_old_way_to_register(tmp_path: Path) -> None:
    flag = 'parser.add_argument("--record-nolora-graph", "--rng", action=argparse.BooleanOptionalAction)'
    old = package(
        tmp_path, "0.5.12", f"{OLD}    record_nolora_graph: bool = True\n    def f(parser):\n        {flag}\n"
    )
    assert command_line({"record_nolora_graph": False}, old) == ["--no-record-nolora-graph"]
    assert old.aliases == {"rng": "record_nolora_graph"}


def test_values_are_taken_as_the_argument_takes_them(now: ServerArguments) -> None:
    resolved, _ = resolve({"model_path": 1234, "tp_size": "2", "ratio": "0.90", "cuda_graph_bs_decode": ["4"]}, now)
    assert resolved == {"model_path": "1234", "tp_size": 2, "ratio": 0.9, "cuda_graph_bs_decode": [4]}


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"tp_sise": 2}, "server.tp_sise: SGLang 0.5.17 has no such argument; did you mean tp_size"),
        ({"tp_size": "two"}, "server.tp_size: SGLang 0.5.17 takes int, not 'two'"),
        ({"tp_size": True}, "takes int, not True"),
        ({"size": "c"}, "takes one of a, b, not 'c'"),
        ({"mode": "z"}, "takes one of x, y"),
        ({"cuda_graph_bs_decode": 4}, "takes a list"),
        ({"cuda_graph_bs_decode": ["a"]}, "takes int"),
        ({"disable_cuda_graph": True}, "SGLang 0.5.17 has retired it; use --cuda-graph-backend=disabled"),
        ({"internal": True}, "has no such argument"),
        ({"on": False}, "server.on: SGLang 0.5.17 takes no flag that turns it off; leave it out"),
        ({"page_size": 16}, "server.page_size: SGLang 0.5.17 has no such argument; write server.page, the name"),
        ({"ratio": float("inf")}, "takes float, not inf"),
    ],
)
def test_impossible_arguments(now: ServerArguments, server: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        resolve(server, now)


def test_renamed_arguments_are_named_with_the_release(now: ServerArguments, tmp_path: Path) -> None:
    resolved, renamed = resolve({"cuda_graph_bs": [1]}, now)
    assert resolved == {"cuda_graph_bs_decode": [1]}
    assert renamed == ["SGLang 0.5.17 calls cuda_graph_bs cuda_graph_bs_decode"]
    old = package(tmp_path / "old", "0.5.12", OLD)
    resolved, renamed = resolve({"cuda_graph_bs_decode": [1], "disable_decode_cuda_graph": True}, old)
    assert resolved == {"cuda_graph_bs": [1], "disable_cuda_graph": True}
    assert len(renamed) == 2


def test_the_layout_of_0_5_23(tmp_path: Path) -> None:
    known = package(tmp_path, "0.5.23", "class ServerArgs:\n    def f(self): ...\n", NEWEST)
    assert set(known.fields) == {"model_path", "size"}
    assert known.fields["size"].choices == ("p", "q")


def test_a_layout_that_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"SGLang 9\.9: its argument list is not where"):
        package(tmp_path, "9.9", "class ServerArgs: ...\n")
