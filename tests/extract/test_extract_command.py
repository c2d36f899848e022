"""What the command asks for before anything is imported, and what it says without the frameworks."""

import sys

import pytest
from command_runs import refused

from phaze_opt.errors import InputError
from phaze_opt.extract.torch_module import parse_input
from phaze_opt.extract.versions import TORCH, Framework

HF = ["extract", "--hf", "config.json", "--out", "model.json"]


def test_without_the_framework_one_sentence_says_which_extra(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    for name in ("torch", "onnx"):
        monkeypatch.setitem(sys.modules, name, None)
    refused(HF, capsys, "torch is not installed", "phaze-opt[extract]", "CPU build")
    refused(["extract", "--onnx", "m.onnx", "--out", "model.json"], capsys, "onnx is not installed", "phaze-opt[onnx]")
    refused(["extract", "--torch", "a:b", "--input", "1,3", "--out", "model.json"], capsys, "torch is not installed")
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize(
    ("version", "is_known"), [("2.6.0", True), ("2.14.1+cpu", True), ("2.5.1", False), ("3.0.0", False), ("dev", False)]
)
def test_versions_outside_the_window_are_refused(version, is_known, monkeypatch):
    module = type(sys)("torch")
    module.__version__ = version
    monkeypatch.setitem(sys.modules, "torch", module)
    if is_known:
        assert TORCH.load() is module
    else:
        with pytest.raises(InputError, match=r"extraction needs 2\.6 <= version < 3\.0"):
            TORCH.load()


def test_a_framework_that_is_broken_says_why(tmp_path, monkeypatch):
    (tmp_path / "broken_framework.py").write_text("raise ImportError('no such symbol')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"does not import \(no such symbol\)"):
        Framework("broken_framework", "extract", least=(1, 0), below=(2, 0)).load()


def test_inputs_are_sizes_and_a_type():
    symbols = {"b": 1}
    assert parse_input("1,3,224,224", symbols).shape == ("b", 3, 224, 224)
    tokens = parse_input("b, s=50:int64", symbols)
    assert (tokens.shape, tokens.dtype, symbols) == (("b", "s"), "int64", {"b": 1, "s": 50})
    assert parse_input("8,s", symbols).sizes({"b": 3, "s": 7}) == (3, 7)


@pytest.mark.parametrize("text", ["", "1,", "1,x", "1,-3", "1,0", "1,3.5", "1,s", "1,3:complex", "1,9999999999999"])
def test_other_inputs_are_refused(text):
    with pytest.raises(InputError):
        parse_input(text, {"b": 1})
