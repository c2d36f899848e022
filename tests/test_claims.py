"""docs/claims.md: its tables are those of the record, and the record's ratios are those of its rates."""

import json
import math
import runpy
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "experiments" / "claims"
RECORD = json.loads((FOLDER / "claims.json").read_text(encoding="utf-8"))
ZOO = json.loads((ROOT / "experiments" / "certified" / "zoo.json").read_text(encoding="utf-8"))["results"]
BANK = 2048
"""Bytes of a buffer for each byte a cycle."""


def mean(values):
    return np.exp(np.log(list(values)).mean())


def test_the_tables_of_the_page_are_those_of_the_record():
    made = runpy.run_path(str(FOLDER / "tables.py"))
    page = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    for name, table in made["TABLES"].items():
        assert made["marked"](page, name, table(RECORD)) == page
    with pytest.raises(ValueError, match="has no table"):
        made["marked"](page, "nothing", "")


@pytest.mark.parametrize("network", ["flat", "two-level"])
def test_ratios_of_the_published_form_are_those_of_its_rates(network):
    found = RECORD["published"][network]
    assert found["own"] == {model: ZOO[f"{network}.{model}"]["certificate"]["samples_per_s"] for model in found["own"]}
    for name, base in found["bases"].items():
        ratios = {model: found["own"][model] / base[model] for model in base}
        assert len(ratios) == 8
        assert found["own_over"][name] == pytest.approx(ratios | {"mean": mean(ratios.values())})
    # No machine is faster by hand than at the best placement, nor than the best of the whole space that it is of.
    assert all(
        found["bases"]["expert on phaze-tpu-v4"][model] <= rate
        for model, rate in found["bases"]["phaze-tpu-v4"].items()
    )
    assert all(rate <= found["own"][model] for model, rate in found["bases"]["phaze-tpu-v4"].items())


@pytest.mark.parametrize("machine", sorted(RECORD["die-own"]))
def test_dies_are_no_larger_than_the_machine_and_have_banks(machine):
    base = RECORD["die-machines"][machine]
    for model, own in RECORD["die-own"][machine].items():
        assert own["is_proved"] == (own["gap"] <= 1e-3)
        assert own["area_mm2"] <= base["area_mm2"]
        assert own["over"] == pytest.approx(own["throughput_samples_per_s"] / base["rates"][model])
        size = {key: int(value) for key, value in (part.split("=") for part in own["chip"].split(","))}
        assert size["glb_mb"] * 2**20 >= BANK * size["glb_bytes_per_cycle"]


def test_neither_wham_nor_a_shared_design_beats_a_certified_one():
    checked = 0
    for machine, rows in RECORD.get("die-wham", {}).items():
        for model, row in rows.items():
            own = RECORD["die-own"][machine][model]
            assert row["throughput_samples_per_s"] <= own["throughput_samples_per_s"] * (1 + own["gap"] + 1e-12)
            checked += 1
    for network, common in RECORD.get("published-common", {}).items():
        found = RECORD["published"][network]
        for model, rate in common["by_model"].items():
            assert rate <= found["own"][model] * 1.001
        assert common["price"] == pytest.approx(1 - mean(common["by_model"][m] / found["own"][m] for m in found["own"]))
        checked += 1
    for machine, shared in RECORD.get("die-shared", {}).items():
        ratios = {model: rate for model, rate in shared["over"].items() if model != "mean"}
        assert shared["over"]["mean"] == pytest.approx(mean(ratios.values()))
        assert all(rate <= RECORD["die-own"][machine][model]["over"] * 1.001 for model, rate in ratios.items())
        assert math.isclose(
            1 - shared["price"], mean(ratios[m] / RECORD["die-own"][machine][m]["over"] for m in ratios), rel_tol=1e-9
        )
        checked += 1
    assert checked
