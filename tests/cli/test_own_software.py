"""A software of the user's own: fitted, named and priced in a command each; and one that nobody measured."""

import pytest
from command_runs import refused, run_json

HEADER = (
    "hardware,n_devices,layers,hidden,heads,seq,global_batch,micro_batch,sharding,dtype,recompute,software,iter_time_s"
)
JOB = ("evaluate", "--model", "llama-3-8b", "--arch", "h100", "--devices", "8", "--global-batch", "64", "--no-range")
DEGREES = ("--tensor-parallel", "1", "--pipeline", "1", "--micro-batch", "1")


@pytest.fixture
def steps(tmp_path):
    """Steps that take twice as long as the package says of the software that they are most like."""
    path = tmp_path / "mine.csv"
    seconds = (1.2, 2.4, 4.8, 9.6)
    rows = [f"h100,8,32,4096,32,2048,{32 << n},4,fsdp,bf16,none,somebodys,{2 * s}" for n, s in enumerate(seconds)]
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def test_a_software_is_fitted_and_then_goes_by_its_name(steps, tmp_path, capsys):
    out = tmp_path / "c.json"
    options = ("--data", steps, "--software", "Somebodys", "--out", out, "--no-held-out")
    found = run_json(["calibrate", *options], capsys)["families"]["modern-training"]
    (group,) = found["groups"]
    assert group == "stack/llm-foundry-h100/somebodys"
    before = run_json(["validate", "--data", steps], capsys)["datasets"]["mine"]
    after = run_json(["validate", "--data", steps, "--constants", out], capsys)["datasets"]["mine"]
    assert before["bias"] < -20
    assert after["mape"] < min(10, before["mape"])
    assert after["middles"] == []
    assert before["middles"]
    named = run_json([*JOB, *DEGREES, "--software", "SOMEBODYS", "--constants", out], capsys)
    base = run_json([*JOB, *DEGREES, "--software", "llm-foundry-h100"], capsys)
    assert named["setting"]["software"] == group.removeprefix("stack/")
    rates = [each["throughput_samples_per_s"] for each in (named, base)]
    assert rates[0] < 0.9 * rates[1]


def test_a_name_that_is_taken_is_refused(steps, tmp_path, capsys):
    options = ("calibrate", "--data", steps, "--out", tmp_path / "c.json", "--software", "TorchTitan")
    refused(options, capsys, "--software", "cannot be the name")


def test_a_software_that_nobody_measured_is_the_middle_of_those_that_suit(capsys):
    unknown = run_json([*JOB, *DEGREES, "--software", "somebodys"], capsys)
    note = next(each for each in unknown["notes"] if each["key"] == "software")["sentence"]
    assert "no software named 'somebodys' was measured" in note
    name = unknown["setting"]["software"]
    assert f"priced as {name}, the middle of" in note
    alone = run_json([*JOB, *DEGREES, "--software", name], capsys)
    assert alone["throughput_samples_per_s"] == unknown["throughput_samples_per_s"]
