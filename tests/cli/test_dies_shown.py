"""What commands say of dies: areas by component, both chips of every ratio, and certificates on a machine's terms."""

from pathlib import Path

import pytest
from command_runs import printed, refused, run, run_json

from phaze_opt.certify.check.check import check_certificate

pytestmark = pytest.mark.usefixtures("undrawn")

TINY = "--model tiny --devices 8 --global-batch 16 --tensor-parallel 1 --no-range --silicon die"
ONE_PLAN = "--pipeline 1 --interleave 1 --zero 0 --micro-batch 1 --recompute never"
SPACE = (
    "area_budget_mm2 = 400\nmin_area_fraction = 0\n[axes]\nnum_tc = [6, 8]\nnum_vc = [8]\ntc_width = [128]\n"
    "tc_depth = [128]\nglb_mb = [4, 8]\nglb_bytes_per_cycle = [1024, 2048]\nhbm_stacks = [1, 2]\n"
)
CHIP = "num_tc=6,num_vc=8,tc_width=128,tc_depth=128,glb_mb=8,glb_bytes_per_cycle=2048,hbm_stacks=2"


@pytest.fixture(name="space")
def _space(tmp_path):
    path = tmp_path / "space.toml"
    path.write_text(SPACE, encoding="utf-8")
    return path


def unwrapped(text):
    return " ".join(text.split())


@pytest.mark.slow
def test_a_proof_on_the_terms_of_a_machine_has_certificates_a_table_and_a_page(tmp_path, space, capsys):
    page = tmp_path / "page.html"
    where = f"--no-tracking --work-dir {tmp_path} --report {page}"
    words = f"certify {TINY} {ONE_PLAN} --space {space} {where} --equal-to {CHIP}"
    line = run_json(words.split(), capsys)
    equal = line["equal_to"]
    assert [each["terms"] for each in equal["found"]] == ["area", "watts", "area, HBM rate and buffer"]
    for each in equal["found"]:
        claim = check_certificate(Path(each["file"])).claim
        assert claim.throughput_samples_per_s == pytest.approx(each["throughput_samples_per_s"], rel=1e-12)
        assert each["ratio"] == pytest.approx(claim.throughput_samples_per_s / equal["throughput_samples_per_s"])
    memories = equal["found"][2]["architecture"]
    assert (memories["hbm_stacks"], memories["glb_mb"]) == (2, 8)
    assert {each["name"] for each in line["references"]} == {"phaze-tpu-v4", "tpu-v4"}
    assert sum(line["die"]["areas_mm2"].values()) == pytest.approx(line["best"]["area_mm2"], rel=1e-9)
    text = page.read_text(encoding="utf-8")
    assert "Edge, package and limits" in text
    assert "at its area, HBM rate and buffer" in text
    pages = [tmp_path / f"page-{terms}.html" for terms in ("area", "watts", "area_and_memories")]
    assert all("the certified optimum, at the" in each.read_text(encoding="utf-8") for each in pages)
    again = unwrapped(printed([*words.split(), "--resume", "--details"], capsys))
    assert all(str(each["file"]) in again for each in equal["found"])


def test_terms_are_of_dies(tmp_path, capsys):
    words = f"certify {TINY.replace('die', 'phaze')} --work-dir {tmp_path} --no-tracking --equal-to phaze-tpu-v4"
    refused(words.split(), capsys, "--equal-to", "leave out --silicon phaze")


def test_evaluate_shows_the_die_and_of_every_baseline_its_memories(capsys):
    words = f"evaluate {TINY} --arch {CHIP} --top 1 --baseline tpu-v4,phaze-tpu-v4".split()
    line = run_json(words, capsys)
    assert line["die"]["area_mm2"] == pytest.approx(line["area_mm2"], rel=1e-12)
    # A machine that exists keeps its published area; a preset that is a design is a die.
    real, design = line["baselines"]
    assert real["die"] is None
    assert design["die"]["area_mm2"] == pytest.approx(design["area_mm2"], rel=1e-12)
    said = unwrapped(printed([*words, "--details"], capsys))
    for expected in ("Area of the die", "whole die", "1,200", "128 MB", "not at equal area", "certify --equal-to"):
        assert expected in said


def test_search_shows_the_die_beside_the_references(tmp_path, space, capsys):
    words = f"search {TINY} --space {space} --trials 2 --strategy random --no-tracking --work-dir {tmp_path}".split()
    line = run_json(words, capsys)
    best = line["best"]
    assert line["die"]["power_w"] == pytest.approx(best["tdp_w"], rel=1e-9)
    for each in line["references"]:
        ratio = best["throughput_samples_per_s"] / each["throughput_samples_per_s"]
        assert each["ratio"] == pytest.approx(ratio, rel=1e-12)
    said = unwrapped(printed([*words, "--resume", "--details"], capsys))
    assert "each chip as it is, not at equal area or watts" in said


def test_architectures_say_by_which_silicon_areas_are(capsys):
    show = ["architectures", "phaze-tpu-v4", "--silicon"]
    by_tables, by_dies = (run_json([*show, word], capsys) for word in ("phaze", "die"))
    assert (by_tables[0]["silicon"], by_dies[0]["silicon"]) == ("at 22 nm", "as a die with HBM2E")
    assert by_dies[0]["area_mm2"] > 1.5 * by_tables[0]["area_mm2"]
    assert run_json(["architectures", "tpu-v4", "--silicon", "phaze"], capsys) == by_tables
    assert "523 mm2 as a die with HBM2E" in unwrapped(printed([*show, "die"], capsys))


def test_a_chip_without_memory_is_told_both_ways_to_state_it(capsys):
    words = f"evaluate {TINY} --arch num_tc=2,num_vc=2,tc_width=128,tc_depth=128,glb_mb=8".split()
    refused(words, capsys, "hbm_gb or hbm_stacks")


def test_a_die_larger_than_the_reticle_is_refused_with_the_reason_first(capsys):
    """Beside a machine that exists too, which is larger as a die than any reticle and priced all the same."""
    large = CHIP.replace("num_tc=6", "num_tc=64")
    evaluate = f"evaluate {TINY} --arch".split()
    code, out, err = run([*evaluate, large], capsys)
    assert code == 3
    found = run_json([*evaluate, large], capsys, code=3)
    reason = f"a die of {found['area_mm2']:,.0f} mm^2 is larger than the reticle's 858 mm^2"
    assert unwrapped(err) == f"infeasible: this die could not be built: {reason}"
    assert "samples/s" not in out
    assert (found["status"], found["reason"]) == ("unbuildable", f"this die could not be built: {reason}")
    assert found["throughput_samples_per_s"] == found["constraints"]["reticle"] - (found["area_mm2"] / 858 - 1) == 0
    assert found["cost"]["capex_usd"] is None
    search = f"search {TINY} {ONE_PLAN} --trials 2 --no-tracking --baseline".split()
    references = {each["name"]: each for each in run_json([*search, f"h100,{large}"], capsys)["references"]}
    assert references["h100"]["throughput_samples_per_s"] > 0
    assert references[large]["throughput_samples_per_s"] == 0
    said = unwrapped(printed([*search, large], capsys))
    assert f"cannot train (this die could not be built: {reason})" in said
