"""``phaze-opt place``: output, exit codes and refusals, through the real command line."""

import json
from pathlib import Path

import pytest

from phaze_opt.cli.main import main

DATA = Path(__file__).parent / "data"


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["place", *arguments])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


def test_json_is_one_line_with_the_optimum(capsys: pytest.CaptureFixture[str]) -> None:
    path = DATA / "10_bert24_w8_d256.json"
    code, out, _ = _run(capsys, str(path), "--semantics", "phaze", "--json")
    optimum = json.loads(path.read_text())["optimum"]
    assert code == 0
    assert out.count("\n") == 1
    result = json.loads(out)
    assert result["batch_time"] == pytest.approx(optimum["finalTimePerBatch"], rel=1e-9)
    assert result["status"] == "optimal"
    assert (result["tensor_parallel"], result["data_parallel"]) == (1, 64)
    assert result["micro_batches"] == 8
    assert [stage["layers"] for stage in result["stages"]] == [stage["nodes"] for stage in optimum["stages"]]
    assert all(stage["devices"] == 1 for stage in result["stages"])


def test_table_names_stages_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, str(DATA / "05_bert24_w1_d64_rec.json"))
    assert code == 0
    assert "1.48156 s (optimal)" in out
    assert "tensor 1 x 2 stages x data 32" in out


def test_infeasible_ends_with_3_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(DATA / "42_rand1_L4_w1_d24.json")
    code, out, _ = _run(capsys, path, "--json")
    assert code == 3
    assert out.count("\n") == 1
    result = json.loads(out)
    assert result["status"] == "infeasible"
    assert result["batch_time"] is None
    assert result["stages"] == []
    assert result["shortfall"]["layer"] == 2
    for words in (
        "layer 2 does not fit: it needs 8.03 GiB",
        "2.03 GiB more",
        "it would fit with maxMemoryPerDevice = 8627349078",
    ):
        assert words in result["reason"]
    code, out, err = _run(capsys, path)
    assert code == 3
    assert out == ""
    assert result["reason"] in " ".join(err.split())
