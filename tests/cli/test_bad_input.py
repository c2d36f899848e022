"""Bad input ends with exit code 2 and one sentence on standard error: no traceback, under 1,500 characters."""

from command_runs import refused, run, run_json

EVALUATE = ["evaluate", "--devices", "8", "--global-batch", "16"]
SEARCH = ["search", "--devices", "8", "--global-batch", "16", "--no-tracking"]
TINY = ["--model", "tiny"]
TPU = ["--arch", "phaze-tpu-v4"]


def test_unwritable_outputs(tmp_path, capsys):
    blocker = tmp_path / "file"
    blocker.write_text("")
    refused([*SEARCH, *TINY, "--work-dir", str(blocker)], capsys, "--work-dir")


def test_infeasible_is_exit_code_3_with_a_reason(capsys):
    arguments = ["evaluate", "--model", "gpt3-175b", *TPU, "--devices", "1", "--global-batch", "8"]
    assert run_json(arguments, capsys, code=3)["status"] == "out_of_memory"
    assert "infeasible" in run(arguments, capsys)[2]


def test_a_budget_that_leaves_no_architecture_is_infeasible(capsys):
    arguments = [*SEARCH, *TINY, "--max-area-mm2", "1"]
    assert run_json(arguments, capsys, code=3)["best"] is None
    assert "1.0 mm^2" in run(arguments, capsys)[2]
