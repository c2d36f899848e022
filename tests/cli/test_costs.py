"""What commands say of money, energy and carbon: the same figures in tables and JSON, and why there are none."""

import pytest
from command_runs import printed, refused, run_json

SHAPE = "--model tiny --devices 8 --global-batch 16 --tensor-parallel 1 --no-range"
ONE_PLAN = "--pipeline 1 --interleave 1 --zero 0 --micro-batch 1 --recompute never"
CHIP = "num_tc=6,num_vc=8,tc_width=128,tc_depth=128,glb_mb=8,glb_bytes_per_cycle=2048,hbm_stacks=2"
DESIGN = f"evaluate {SHAPE} {ONE_PLAN} --arch {CHIP}"


def unwrapped(text):
    return " ".join(text.split())


def test_evaluate_says_what_a_design_costs_and_a_run_on_it(capsys):
    line = run_json(f"{DESIGN} --tokens 1e12 --grid taiwan --baseline a100-80g,b200 --details".split(), capsys)
    cost = line["cost"]
    assert sum(cost["parts_usd"].values()) == pytest.approx(cost["device_usd"])
    assert cost["capex_usd"] == pytest.approx(8 * cost["device_usd"])
    assert cost["tco_usd"] == pytest.approx(cost["capex_usd"] + cost["electricity_usd"])
    run = cost["training_run"]
    assert run["days"] == pytest.approx(1e12 / line["throughput_tokens_per_s"] / 86400)
    share = run["days"] / (4 * 365 * 0.8)
    assert run["usd"] == pytest.approx(cost["tco_usd"] * share)
    assert run["kg"] == pytest.approx((cost["embodied_kg"] + cost["operational_kg"]) * share)
    real, unknown = (each["cost"] for each in line["baselines"])
    assert real["parts_usd"]["memory"] == pytest.approx(800.0)
    assert unknown["device_usd"] is None
    assert "die" in unknown["unsaid"]
    text = unwrapped(printed(f"{DESIGN} --tokens 1T --grid taiwan --baseline a100-80g,b200 --details".split(), capsys))
    assert "What it costs" in text
    assert f"a device {cost['device_usd']:,.0f}" in text
    assert "To train on 1.00 trillion tokens takes" in text
    assert "on grid taiwan" in text
    assert f" {real['device_usd']:,.0f} " in text
    days = 1e12 / line["baselines"][1]["throughput_tokens_per_s"] / 86400
    assert f"b200 n/k n/k n/k n/k n/k {days:#.3g} n/k" in text
    assert "what b200 costs is not known" in text
    named = line["setting"]["machine"]
    cheap, dear = sorted([(named, cost), ("a100-80g", real)], key=lambda pair: pair[1]["usd_per_token"])
    ratio = cheap[1]["usd_per_token"] / dear[1]["usd_per_token"]
    least = f"{1e9 * cheap[1]['usd_per_token']:#.3g} USD for 1B"
    assert f"a token costs least on {cheap[0]}, {least}: {ratio:.2f} times what it costs on {dear[0]}" in text
    assert f"; {1e9 * cost['usd_per_token']:#.3g} USD for 1B of them)" in text
    assert f"{1e9 * real['usd_per_token']:#.3g}" in text
    assert real["usd_per_token"] == pytest.approx(real["training_run"]["usd"] / 1e12)
    low, high = real["usd_per_token_range"]
    assert low < real["usd_per_token"] < high


def test_sensitivity_names_the_prices_that_decide(capsys, tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text("volume.devices = 1e6\n")
    words = f"{DESIGN} --prices {prices}".split()
    line, plain = run_json(words, capsys), run_json(DESIGN.split(), capsys)
    assert line["cost"]["parts_usd"]["design"] == pytest.approx(298.0)
    assert line["cost"]["prices_digest"] != plain["cost"]["prices_digest"]
    assert line["throughput_samples_per_s"] == plain["throughput_samples_per_s"]


def test_search_and_certify_say_what_the_best_costs(tmp_path, capsys):
    space = tmp_path / "space.toml"
    space.write_text(
        "area_budget_mm2 = 400\nmin_area_fraction = 0\n[axes]\nnum_tc = [6]\nnum_vc = [8]\ntc_width = [128]\n"
        "tc_depth = [128]\nglb_mb = [8]\nglb_bytes_per_cycle = [2048]\nhbm_stacks = [1, 2]\n"
    )
    records = f"--space {space} --no-tracking --work-dir {tmp_path}"
    words = f"search {SHAPE} {ONE_PLAN} {records} --strategy random --trials 2 --objective throughput_per_usd"
    line = run_json(words.split(), capsys)
    assert line["best"]["throughput_per_usd"] == pytest.approx(line["cost"]["throughput_per_usd"], rel=1e-12)
    assert set(line["cost_references"]) == {"phaze-tpu-v4", "tpu-v4"}
    proof = f"certify {SHAPE} {ONE_PLAN} {records}"
    proved = run_json(proof.split(), capsys)
    assert proved["cost"]["capex_usd"] == pytest.approx(8 * proved["cost"]["device_usd"])
    text = unwrapped(printed([*proof.split(), "--resume", "--details"], capsys))
    assert "For a dollar of the total cost of ownership this design" in text
    refused([*proof.split(), "--objective", "throughput_per_joule"], capsys, "searched, not proved")


def test_where_costs_are_not_known_a_sentence_says_so(capsys):
    published = f"evaluate {SHAPE} --as phaze --arch phaze-tpu-v4"
    for more in ("--details", "--tokens 1e12"):
        text = unwrapped(printed([*published.split(), *more.split()], capsys))
        assert "What the chip costs is not known: the 22 nm tables" in text
        assert ("To train on 1.00 trillion tokens takes" in text) == ("--tokens" in more)
    assert run_json(published.split(), capsys)["cost"]["unsaid"]


def test_options_that_break_a_rule_are_refused(tmp_path, capsys):
    refused(f"{DESIGN} --grid tawian".split(), capsys, "--grid", "did you mean taiwan")
    refused(f"{DESIGN} --tokens 1Q".split(), capsys, "--tokens", "1Q", "K, M, B or T")
    refused(f"{DESIGN} --tokens 15trillion".split(), capsys, "K, M, B or T")
    refused(f"{DESIGN} --tokens 0".split(), capsys, "--tokens", "positive")
    refused(f"{DESIGN} --prices {tmp_path / 'none.toml'}".split(), capsys, "none.toml")
    line = run_json(f"{DESIGN} --max-capex-usd 10".split(), capsys, code=3)
    assert (line["status"], line["throughput_samples_per_s"]) == ("over_capex", 0.0)
    line = run_json(f"{DESIGN} --max-capex-usd 1e9".split(), capsys)
    assert line["constraints"]["capex"] == pytest.approx(line["cost"]["capex_usd"] / 1e9 - 1.0)
