"""Dies, NVDLA and Eyeriss: layers have their published sizes, predictions follow closed forms, faults are named."""

import json
import math
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kits.measured_rows import changed, public_rows

from phaze_opt.errors import InputError
from phaze_opt.hardware.area import area_mm2, tdp_w
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import accelerator_of
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.networks import load_network
from phaze_opt.validation.silicon import (
    SILICON,
    Convolution,
    area_factor,
    energy_factor,
    eyeriss_chip,
    eyeriss_layer,
    multiprocessor_mm2,
    nvdla_chip,
    price_layers,
    resnet50,
)

SETS = ("die_area", "nvdla_estimates", "eyeriss_alexnet")
NONE = FittedConstants({})
FOLDER = Path(__file__).parents[2] / "experiments" / "validation"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """What docs/silicon.md quotes is worked out by it."""
    return runpy.run_path(str(FOLDER / "silicon.py"))


def test_resnet50_has_its_published_size() -> None:
    layers = resnet50()
    assert len(layers) == 54
    assert sum(layer.matmul.macs for layer in layers) == pytest.approx(3.86e9, rel=2e-3)
    weights = sum(layer.in_channels * layer.out_channels * layer.kernel**2 for layer in layers)
    assert weights == pytest.approx(25.5e6, rel=2e-3)
    assert sum(layer.matmul.macs for layer in resnet50(4)) == 4 * sum(layer.matmul.macs for layer in layers)


def test_layers_of_eyeriss_have_their_published_macs() -> None:
    for row in public_rows("eyeriss_alexnet"):
        assert eyeriss_layer(row).matmul.macs / 1e9 == pytest.approx(row.number("gmacs"), abs=0.005)


def test_a_layer_takes_its_multiplications_or_its_traffic() -> None:
    layer = Convolution("x", 4, 168, 168, 30, 28, 3)
    chip = eyeriss_chip()
    costs = price_layers([layer], chip)
    ideal_s = layer.matmul.macs / (168 * 200e6)
    assert ideal_s < costs.latency_s[0] < 1.1 * ideal_s
    assert costs.dram_bytes[0] == 2 * layer.elements
    slow = price_layers([layer], replace(chip, hbm_bandwidth_bytes_per_s=1e6))
    assert slow.latency_s[0] == pytest.approx(2 * layer.elements / 1e6)


def test_scaling_is_neutral_at_22_nm_and_follows_the_published_ratios() -> None:
    assert (area_factor("22 nm"), energy_factor("22 nm")) == (1.0, 1.0)
    assert area_factor("TSMC N7") == pytest.approx(0.027 / 0.092)
    assert energy_factor("65 nm") / energy_factor("7 nm") == pytest.approx(2.6 ** (math.log(65 / 7) / math.log(45 / 7)))
    with pytest.raises(InputError, match="did you mean"):
        area_factor("TSMC N77")


def test_areas_of_components_add_up_to_the_model_of_the_chip(script: dict[str, Any]) -> None:
    chip = accelerator_of(load_device("a100-80g"), load_constants())
    cores = {f.subject: f for f in script["silicon_figures"](public_rows("die_area"))}
    whole = cores["GA100 (A100), cores"].predicted / area_factor("TSMC N7")
    assert whole == pytest.approx(128 * multiprocessor_mm2("a100-80g"))
    without_cache = area_mm2(replace(chip, glb_bytes=2 << 20)) - 3.33822
    assert 108 * multiprocessor_mm2("a100-80g") == pytest.approx(without_cache)


def test_parts_of_the_power_are_those_of_the_model(script: dict[str, Any]) -> None:
    constants = load_constants()
    network = load_network("two-level", num_devices=8)
    for name in ("a100-80g", "mi210", "tpu-v3"):
        chip = accelerator_of(load_device(name), constants)
        links = sum(dimension.bandwidth_bytes_per_s for dimension in network.dimensions)
        assert script["tdp_parts"](chip, links, constants).total_w == pytest.approx(
            tdp_w(chip, network, constants), rel=1e-12
        )


def test_predicted_powers_are_near_those_of_real_machines_with_matrix_units(script: dict[str, Any]) -> None:
    checks = {check.device: check for check in script["check_tdp"]()}
    assert len(checks) >= 25
    assert {"a100-80g", "h100", "mi210", "v100"} <= set(checks)
    logs = {name: math.log(check.predicted.total_w / check.published_w) for name, check in checks.items()}
    assert math.exp(np.mean(np.abs(list(logs.values())))) < 1.6
    # Processors without matrix units are mostly what the model does not have.
    assert all(math.log(1 / 4) < logs[name] < math.log(1 / 3) for name in ("p4", "p100"))
    # Sums in fp32 go at half of the rate that its arrays are built for, and its memory is not HBM.
    apart = {"p4", "p100", "rtx3090"}
    assert all(abs(value) < math.log(2.5) for name, value in logs.items() if name not in apart)
    assert checks["a100-80g"].predicted.arrays_w < checks["a100-80g"].at_22_nm.arrays_w
    assert checks["a100-80g"].predicted.memory_w == checks["a100-80g"].at_22_nm.memory_w


def test_the_family_scores_what_its_model_has_and_says_why_not() -> None:
    family = SILICON
    assert family.datasets == SETS
    for name in SETS:
        rows = public_rows(name)
        compiled = family.compile(rows)
        predicted = compiled.seconds(NONE)
        for index, row in enumerate(rows):
            assert (index in compiled.unscored) == bool(np.isnan(predicted[index]))
            assert family.regime(row)
            if index not in compiled.unscored:
                assert compiled.explain(NONE, index)[0].seconds == predicted[index] > 0
                assert compiled.measured_s[index] > 0
        assert not family.parameters(rows)
    assert "memory PHY" in "; ".join(family.compile(public_rows("die_area")).unscored.values())


def test_rows_of_the_other_half_are_predicted_too() -> None:
    family = SILICON
    nvdla, die, layer = (public_rows(name)[0] for name in ("nvdla_estimates", "die_area", "eyeriss_alexnet"))
    for macs in (32, 128, 256):
        chip = nvdla_chip(changed(nvdla, macs_int8=str(macs)))
        assert chip.num_macs == macs
    blank = changed(nvdla, resnet50_frames_per_s="")
    assert family.compile([blank]).unscored == {0: "no frame rate is published"}
    cores = changed(die, die="Aldebaran GCD (MI210)", component="cores", process="TSMC N6")
    assert family.compile([cores]).seconds(NONE)[0] > 0
    unknown = family.compile([changed(die, die="TU102", component="cores")])
    assert unknown.unscored == {0: "no layout of die 'TU102' is known"}
    grouped = changed(layer, layer="CONV2", in_ch_per_group="48", groups="2", kernel="5", out_ch="256", out_hw="27")
    assert family.compile([grouped]).seconds(NONE)[0] > 0
    with pytest.raises(InputError, match="'batch'"):
        family.compile([changed(layer, batch="many")])


def test_the_record_is_what_the_script_works_out(script: dict[str, Any]) -> None:
    recorded = json.loads((FOLDER / "silicon.json").read_text(encoding="utf-8"))
    powers = {row["device"]: row["predicted_w"] for row in map(script["tdp_row"], script["check_tdp"]())}
    assert powers == pytest.approx({row["device"]: row["predicted_w"] for row in recorded["tdp"]}, rel=1e-3, abs=0.1)
    for name in SETS:
        found, kept = (
            [script["figure_row"](figure) for figure in script["silicon_figures"](public_rows(name))],
            recorded["figures"][name],
        )
        assert [(row["row_id"], row["quantity"]) for row in found] == [(row["row_id"], row["quantity"]) for row in kept]
        ratios = [[row["ratio"] or 0.0 for row in rows] for rows in (found, kept)]
        assert ratios[0] == pytest.approx(ratios[1], abs=2e-3)
