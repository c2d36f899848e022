"""A machine of a user's own from data sheet to constants, and names of machines, as the command line has them."""

import json
import shlex

import pytest
from command_runs import printed, run, run_json
from sample_files import ARRAYS, ZEUS

from phaze_opt.cli.measurements import NEEDED_COLUMNS
from phaze_opt.hardware.fitted import read_own_file
from phaze_opt.validation.schema import COLLECTIVES, OPERATORS, TRAINING

SHARE, LAUNCH_S = 0.7, 6e-5
"""What the measurements below are made of: a share of the peak, and a launch."""
TRAINING_FILE = (
    "hardware,n_devices,layers,hidden,heads,kv_heads,ffn,mlp_matrices,vocab,seq,global_batch,micro_batch,tp,iter_time_s\n"
    "zeus-1,8,24,2048,16,8,8192,{},50304,2048,64,4,2,2.0\n"
)


H100 = """
name = "h100"
maker = "nvidia"
style = "tiles"
num_multiprocessors = 132
peak_tflops = { fp32 = 66.9, tf32 = 494.7, bf16 = 989.4, fp8 = 1978.9 }
cache_mb = 50
hbm_gb = 120
hbm_gb_per_s = 3350
clock_ghz = 1.83
network = "dgx-h100"
tdp_w = 700
"""


@pytest.fixture
def zeus(tmp_path):
    path = tmp_path / "zeus 1.toml"
    path.write_text(ZEUS)
    return path


@pytest.fixture
def data(tmp_path):
    """Matmuls of whole waves, bound by compute, and small ones, bound by launches."""
    lines = ["hardware,op,m,n,k,dtype,latency_us"]
    for m, n, k in ((8192, 8192, 8192), (8192, 8192, 4096), (16384, 8192, 8192), (128, 128, 128), (128, 256, 128)):
        seconds = LAUNCH_S + 2.0 * m * n * k / (SHARE * 196.6e12)
        lines.append(f"zeus-1,matmul,{m},{n},{k},bf16,{seconds * 1e6:.2f}")
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_constants_are_fitted_to_a_machine_of_a_file(zeus, data, tmp_path, capsys):
    out = tmp_path / "c.json"
    text = printed(["calibrate", "--data", data, "--machine", zeus, "--out", out, "--no-held-out", "--details"], capsys)
    constants = json.loads(out.read_text())["groups"]["operators/zeus-1/host"]["constants"]
    assert constants["matmul_efficiency"]["value"] == pytest.approx(SHARE, rel=0.08)
    assert constants["launch_s"]["value"] == pytest.approx(LAUNCH_S, rel=0.05)
    command = text.rstrip().splitlines()[-1].partition("`phaze-opt ")[2].partition("`")[0]
    assert run_json(shlex.split(command), capsys)["datasets"]["mine"]["mape"] < 2.0


def test_a_machine_without_constants_is_priced_and_said(zeus, data, tmp_path, capsys):
    code, _, err = run(["validate", "--data", data, "--machine", zeus], capsys)
    assert code == 0
    assert "note: no constants were fitted to zeus-1" in err
    out = tmp_path / "c.json"
    run(["calibrate", "--data", data, "--machine", zeus, "--out", out, "--no-held-out"], capsys)
    _, _, err = run(["validate", "--data", data, "--machine", zeus, "--constants", out], capsys)
    assert "no constants" not in err


def test_the_call_of_a_host_is_fitted_to_a_machine_of_systolic_arrays(zeus, data, tmp_path, capsys):
    arrays = 'style = "systolic"\nnum_multiprocessors = 4\narray_width = 128\narray_depth = 128\n'
    lines = [line for line in ZEUS.splitlines() if not line.startswith(("style", "num_multiprocessors"))]
    zeus.write_text("\n".join([lines[0], arrays.strip(), *lines[1:]]) + "\n")
    code, _, err = run(["validate", "--data", data, "--machine", zeus], capsys)
    assert code == 0
    assert "note: no constants were fitted to zeus-1" in err
    out = tmp_path / "c.json"
    printed(["calibrate", "--data", data, "--machine", zeus, "--out", out, "--no-held-out"], capsys)
    groups = json.loads(out.read_text())["groups"]
    assert groups["operators/zeus-1/host"]["constants"]["launch_s"]["value"] == pytest.approx(LAUNCH_S, rel=0.05)
    # 128 x 128 arrays lose 382 cycles at each fold of 8192, so they need a higher share than the whole peak's.
    awaited = groups["operators/systolic/awaited"]["constants"]
    assert awaited["array_efficiency"]["value"] == pytest.approx(SHARE * (8192 + 382) / 8192, rel=0.02)
    # What traces showed stays: designed chips and training steps take it.
    assert groups["operators/systolic/traced"] == read_own_file().model_dump()["groups"]["operators/systolic/traced"]
    _, _, err = run(["validate", "--data", data, "--machine", zeus, "--constants", out], capsys)
    assert "no constants" not in err


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("zeus-1", "no machine is named 'zeus-1'"),
        ("A100", "'A100' may be a100-80g, a100-40g, a100-pcie-40g or a100-pcie-80g; name one of them"),
    ],
)
def test_calibrate_and_validate_give_the_same_reason(name, reason, data, tmp_path, capsys):
    data.write_text(data.read_text().replace("zeus-1", name))
    code, _, err = run(["calibrate", "--data", data, "--out", tmp_path / "c.json"], capsys)
    assert (code, reason in err) == (2, True), err
    assert "nothing to fit: operators: none of 5 rows can be predicted; line 2: " in err
    assert ("--machine" in err) is (name == "zeus-1")
    assert not (tmp_path / "c.json").exists()
    reasons = run_json(["validate", "--data", data], capsys)["datasets"]["mine"]["unscored_reasons"]
    assert [reason in text for text in reasons] == [True]


def test_links_of_an_own_machine_are_those_of_its_network_not_of_one_whose_name_begins_alike(zeus, tmp_path, capsys):
    zeus.write_text(ZEUS.replace("zeus-1", "A100-mine").replace('network = "dgx-a100"\n', ""))
    path = tmp_path / "links.csv"
    for name, scored in (("A100-mine", 0), ("A100-SXM", 1), ("NVIDIA A100-SXM4-80GB", 1)):
        path.write_text(f"hardware,n_devices,bytes,latency_us\n{name},8,1048576,40\n")
        found = run_json(["validate", "--data", path, "--machine", zeus], capsys)["datasets"]["links"]
        assert found["scored"] == scored, name
    _, _, err = run(["calibrate", "--data", path, "--out", tmp_path / "c.json"], capsys)
    assert "nothing to fit: collective-kinds: too few rows to fit a constant (1 given)" in err


def test_a_machine_of_a_file_has_no_notes_of_the_packages_of_its_name(tmp_path, capsys):
    """Other memory, the same name: nothing was measured on it, and no constants were fitted to it."""
    path, job = tmp_path / "h100.toml", ["--model", "tiny", "--devices", "8", "--global-batch", "16", "--no-range"]
    path.write_text(H100)
    own, shipped = (
        " ".join(printed(["evaluate", *job, "--software", "megatron-core", "--arch", arch], capsys).split())
        for arch in (path, "h100")
    )
    assert "megatron-core was not measured on h100 of your file" in own
    assert "was not measured on" not in shipped
    text = " ".join(printed(["evaluate", *job, "--arch", path, "--details", "--baseline", "h100"], capsys).split())
    assert "The throughput of h100 of your file is" in text
    assert "software megatron-core, by rule, as none was measured on h100 of your file" in text
    rows = tmp_path / "mine.csv"
    rows.write_text("hardware,op,m,n,k,dtype,latency_us,timing\nh100,matmul,4096,4096,4096,bf16,250,host\n")
    for options, words in (((), "to h100:"), (("--machine", path), "to h100 of your file:")):
        assert f"no constants were fitted {words}" in run(["validate", "--data", rows, *options], capsys)[2]


def test_training_rows_of_the_machine_are_scored_and_a_llama_says_its_matrices(zeus, tmp_path, capsys):
    path = tmp_path / "steps.csv"
    path.write_text(TRAINING_FILE.format(3))
    found = run_json(["validate", "--data", path, "--machine", zeus], capsys)["datasets"]["steps"]
    assert (found["rows"], found["scored"]) == (1, 1)
    _, _, err = run(["validate", "--data", path, "--machine", zeus], capsys)
    assert "zeus-1: its steps are priced with constants of software that was measured on other machines" in err
    fit = ["calibrate", "--data", path, "--machine", zeus, "--out", tmp_path / "c.json", "--no-held-out"]
    _, words, _ = run(fit, capsys)
    # Without the name of the software, plans on a machine that no published row shows take another one by rule.
    assert "`evaluate --software megatron-2021 --constants" in words
    _, _, err = run(["validate", "--data", path, "--machine", zeus, "--constants", tmp_path / "c.json"], capsys)
    assert "no constants" not in err
    path.write_text(TRAINING_FILE.format(""))
    code, _, err = run(["validate", "--data", path, "--machine", zeus], capsys)
    assert code == 2
    assert "steps.csv:2: column 'mlp_matrices': is blank beside 8 kv_heads of 16 heads; state 3" in err


def test_evaluate_prices_plans_on_the_machine(zeus, capsys):
    """With arrays or without; area and power are what the file states, or not published."""
    case = ["evaluate", "--model", "tiny", "--devices", "8", "--global-batch", "16", "--arch", zeus]
    found = run_json(case, capsys)
    setting = found["setting"]
    assert (setting["machine"], setting["software"], setting["network"]) == ("zeus-1", "megatron-core", "dgx-a100")
    assert setting["peak_flops_per_s"] == 196.6e12
    assert (found["area_mm2"], found["tdp_w"], found["throughput_per_tdp"]) == (None, None, None)
    chip = found["architecture"]
    rate = 2 * chip["num_tc"] * chip["tc_width"] * chip["tc_depth"] * chip["clock_hz"]
    assert rate == pytest.approx(196.6e12, rel=1e-3)
    text = " ".join(printed([*case, "--details"], capsys).split())
    assert "not measured on zeus-1" in text
    assert "die area not published" in text
    zeus.write_text(ZEUS + ARRAYS + "die_mm2 = 500\ntdp_w = 350\n")
    stated = run_json(case, capsys)
    assert (stated["area_mm2"], stated["tdp_w"]) == (500.0, 350.0)
    assert stated["plans"] == found["plans"]
    assert (stated["architecture"]["num_tc"], stated["architecture"]["tc_width"]) == (256, 16)


def test_help_lists_the_columns_that_the_schemas_need(capsys):
    for schema in (OPERATORS, COLLECTIVES, TRAINING):
        _, _, rest = NEEDED_COLUMNS.partition(f"{schema.kind} ")
        columns = rest.partition(";")[0].partition(" (")[0].partition(". ")[0]
        assert columns.split(", ") == list(schema.required)
    for command in ("validate", "calibrate"):
        _, text, _ = run([command, "--help"], capsys)
        assert "Columns needed" in text
        assert "iter_time_s" in text


def test_architectures_fit_a_terminal_and_tell_all_of_one(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = printed(["architectures"], capsys)
    lines = text.splitlines()
    (h100,) = (line for line in lines if line.startswith("h100 "))
    assert h100.split() == ["h100", "nvidia", "989.4", "80", "3,350", "dgx-h100", "814", "700"]
    assert len([line for line in lines if line.strip()]) < 64
    _, text, _ = run(["architectures", "NVIDIA H100 80GB HBM3"], capsys)
    assert text.split()[0] == "h100"
    assert "white paper" in text
    assert "dgx-h100" in text
    (row,) = run_json(["architectures", "H100-SXM"], capsys)
    assert (row["name"], row["maker"], row["network"]) == ("h100", "nvidia", "dgx-h100")
    assert (row["machine_tflops"]["fp8"], row["published_tdp_w"]) == (1979.0, 700.0)
    designs = [row for row in run_json(["architectures"], capsys) if row["kind"] == "design"]
    assert [row["name"] for row in designs] == ["nvdla-like", "phaze-tpu-v4"]
