"""Sensitivity: every uncertain constant and every alternative choice has its row."""

from dataclasses import replace

import pytest
from kits.scenarios import make_scenario

from phaze_opt.hardware.area import tdp_w
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.hardware.silicon.silicon import silicon_of
from phaze_opt.objective import headline_range
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.headline_range import SensitivityCase, SensitivityRow, analyse_sensitivity

STATIC = "energy.static_w_per_mm2"


@pytest.fixture
def price_rows_of(monkeypatch):
    """Leaves the rows of all assumptions but one kind unpriced: which rows there are is looked at, or these alone."""

    def choose(prefix):
        price = headline_range._Pricer.row

        def row(self, constants, *, assumption, setting, origin):
            if assumption.startswith(prefix):
                return price(self, constants, assumption=assumption, setting=setting, origin=origin)
            return SensitivityRow(assumption, setting, origin, 0.0, 0.0, 0.0, 0.0)

        monkeypatch.setattr(headline_range._Pricer, "row", row)

    return choose


def test_rows_cover_every_assumption_and_option():
    constants = load_constants()
    case = SensitivityCase(
        scenario=make_scenario("tiny", global_batch=16),
        build_accelerator=lambda varied: load_architecture("phaze-tpu-v4", constants=varied),
        micro_batch=2,
        network_name="two-level",
    )
    rows = list(analyse_sensitivity(case))
    assert rows[0].origin == "nominal"
    assert rows[0].ratio_phaze_tpu_v4 == 1.0
    named = {row.assumption for row in rows[1:]}
    expected = {key for key in constants.uncertain if not key.startswith("network.phaze.")}
    expected |= {name for name, _ in constants.alternatives}
    assert named == expected
    assert all(row.throughput_samples_per_s > 0 for row in rows)
    slow = next(r for r in rows if r.assumption == "vector_cycles.adam" and r.origin == "high")
    assert slow.throughput_samples_per_s <= rows[0].throughput_samples_per_s
    assert all(row.ratio_phaze_tpu_v4 == 1.0 for row in rows)


def test_each_ratio_is_design_over_reference_under_the_same_setting():
    """One constant, one option: the design and both references evaluated apart under them."""
    text = "num_tc=16,num_vc=64,tc_width=64,tc_depth=64,glb_mb=16,hbm_gb=32"
    scenario = make_scenario("bert-large", devices=8, tensor_parallel=(1,))
    nominal = load_constants()
    static = nominal.entries[STATIC]
    case = SensitivityCase(
        scenario=scenario,
        build_accelerator=lambda varied: load_architecture(text, constants=varied),
        micro_batch=2,
        network_name="two-level",
    )
    rows = {(row.assumption, row.setting): row for row in analyse_sensitivity(case)}
    settings = {
        ("", ""): nominal,
        ("hbm.stack_bandwidth_bytes_per_s", "2.25e+11 bytes/s per stack"): nominal.with_overrides(
            {"hbm.stack_bandwidth_bytes_per_s": 225e9}
        ),
        ("vector_cycles", "doubled"): nominal.with_options({"vector_cycles": "doubled"}),
        ("hbm_form", "fixed"): nominal.with_options({"hbm_form": "fixed"}),
        (STATIC, f"{static.high:g} {static.unit}"): nominal.with_overrides({STATIC: static.high}),
    }
    seen = set()
    for key, constants in settings.items():
        objective = Objective(scenario, constants=constants)
        design, reference, published = (
            objective.evaluate_accelerator(load_architecture(name, constants=constants), 2)
            for name in (text, "phaze-tpu-v4", "tpu-v4")
        )
        row = rows[key]
        assert row.throughput_samples_per_s == design.throughput_samples_per_s
        assert row.throughput_per_tdp == pytest.approx(design.throughput_per_tdp, rel=1e-12)
        assert row.ratio_phaze_tpu_v4 == design.throughput_samples_per_s / reference.throughput_samples_per_s
        assert row.ratio_modelled_tpu_v4 == design.throughput_samples_per_s / published.throughput_samples_per_s
        seen.add((row.ratio_phaze_tpu_v4, row.throughput_per_tdp))
    assert len(seen) == len(settings)


def test_a_tdp_budget_holds_under_every_constant():
    """Power alone changes under the energy constants: the design falls out of its budget, the references do not."""
    scenario = make_scenario("tiny", global_batch=16)
    nominal = load_constants()
    power = tdp_w(load_architecture("phaze-tpu-v4", constants=nominal), scenario.cluster.network, nominal)
    case = SensitivityCase(
        scenario=replace(scenario, max_tdp_w=power * 1.0001),
        build_accelerator=lambda varied: load_architecture("phaze-tpu-v4", constants=varied),
        micro_batch=2,
        network_name="two-level",
    )
    rows = {(row.assumption, row.origin): row for row in analyse_sensitivity(case)}
    assert rows["", "nominal"].throughput_samples_per_s > 0
    assert rows[STATIC, "high"].throughput_samples_per_s == 0
    assert rows[STATIC, "low"].throughput_samples_per_s > 0


def test_a_design_has_rows_of_the_parameters_that_it_states(price_rows_of):
    price_rows_of("arrays.")
    text = "num_tc=8,num_vc=8,tc_width=128,tc_depth=128,glb_mb=8,glb_bytes_per_cycle=4096,hbm_stacks=2"
    scenario = make_scenario("tiny", devices=16, global_batch=16, tensor_parallel=(1,))
    shares = []
    for more in ("", ",pipelining=dmdb-wls", ",sparse_array=2:4"):
        case = SensitivityCase(
            scenario=replace(scenario, silicon=silicon_of(7, scenario.cluster.network)),
            build_accelerator=lambda varied, more=more: load_architecture(text + more, constants=varied),
            micro_batch=2,
            network_name="two-level",
        )
        rows = [row for row in analyse_sensitivity(case) if row.assumption.startswith("arrays.")]
        shares.append({row.assumption for row in rows})
        powers = {row.throughput_per_tdp for row in rows}
        assert len(powers) == len(rows), "area and power follow"
    assert shares == [set(), {"arrays.stage_share"}, {"arrays.choice_share"}]


@pytest.mark.parametrize("links", ["", ",link_gb_per_s=800"])
def test_a_design_that_states_its_links_has_no_bandwidths_of_the_network(links, price_rows_of):
    price_rows_of("network.")
    text = f"num_tc=8,num_vc=8,tc_width=128,tc_depth=128,glb_mb=8,glb_bytes_per_cycle=4096,hbm_stacks=2{links}"
    scenario = make_scenario("tiny", devices=16, global_batch=16, tensor_parallel=(1,))
    case = SensitivityCase(
        scenario=replace(scenario, silicon=silicon_of(7, scenario.cluster.network)),
        build_accelerator=lambda varied: load_architecture(text, constants=varied),
        micro_batch=2,
        network_name="two-level",
    )
    named = {row.assumption for row in analyse_sensitivity(case) if row.assumption.startswith("network.")}
    rates = {f"network.two_level.{level}_bandwidth_bytes_per_s" for level in ("inner", "outer")}
    assert named == {key.replace("bandwidth_bytes_per_s", "latency_s") for key in rates} | (set() if links else rates)
