"""Sensitivity: every uncertain constant and every alternative choice has its row."""

from scenarios import make_scenario

from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.sensitivity import SensitivityCase, analyse_sensitivity


def test_rows_cover_every_assumption_and_option():
    constants = load_constants()
    case = SensitivityCase(
        scenario=make_scenario("tiny", global_batch=16),
        build_accelerator=lambda varied: load_architecture("tpu-v4", constants=varied),
        micro_batch=2,
        network_name="two-level",
    )
    rows = list(analyse_sensitivity(case))
    assert rows[0].origin == "nominal"
    assert rows[0].ratio_tpu_v4 == 1.0
    named = {row.assumption for row in rows[1:]}
    expected = {key for key in constants.uncertain if not key.startswith("network.phaze.")} | set(constants.options)
    assert named == expected
    assert all(row.throughput_samples_per_s > 0 for row in rows)
    slow = next(r for r in rows if r.assumption == "vector_cycles.adam" and r.origin == "high")
    assert slow.throughput_samples_per_s <= rows[0].throughput_samples_per_s
    assert all(row.ratio_tpu_v4 == 1.0 for row in rows)
