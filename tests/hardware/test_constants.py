"""Constants: sources, ranges, overrides, options, digest, and faults of a constants file."""

import pickle
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.errors import InputError
from phaze_opt.graph.operator import VectorKind
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.designed_chip import HbmForm, build_accelerator
from phaze_opt.hardware.flexibility import SWITCHES

CONSTANTS = load_constants()
MINIMAL = '[glb.bytes_per_cycle]\nvalue = 6144\nunit = "B"\nassumption = "x"\n'


def test_every_constant_has_unit_origin_and_a_range_around_its_value() -> None:
    for key, entry in CONSTANTS.entries.items():
        assert entry.unit, key
        assert entry.source, key
        assert entry.low <= entry.value <= entry.high, key
        if entry.is_assumption and not entry.parameter:
            assert (entry.low, entry.high) == (entry.value / 2, entry.value * 2), key


def test_values_of_the_specification() -> None:
    expected = {
        "design.clock_hz": 1.05e9,
        "glb.bytes_per_cycle": 6144,
        "hbm.stack_bandwidth_bytes_per_s": 400e9,
        "hbm.fixed_bandwidth_bytes_per_s": 900e9,
        "network.two_level.inner_bandwidth_bytes_per_s": 450e9,
        "network.two_level.inner_latency_s": 1e-6,
        "network.two_level.outer_bandwidth_bytes_per_s": 50e9,
        "network.two_level.outer_latency_s": 5e-6,
        "network.phaze.bandwidth_bytes_per_s": 4 * 2**30,
        "network.phaze.latency_s": 0,
        "energy.hbm_pj_per_bit": 5,
        "energy.link_pj_per_bit": 10,
        "energy.static_w_per_mm2": 0.05,
        "space.min_area_fraction": 0.3,
    }
    assert {key: CONSTANTS.value(key) for key in expected} == expected
    cycles = [CONSTANTS.value(f"vector_cycles.{kind.value}") for kind in VectorKind]
    assert cycles == [1, 3, 8, 10, 8, 5, 4, 8, 10, 2, 12]


def test_designed_chips_take_clock_and_buffer_rate_from_the_constants() -> None:
    varied = CONSTANTS.with_overrides({"design.clock_hz": 2e9, "glb.bytes_per_cycle": 3072})
    for constants, clock_hz, per_cycle in ((CONSTANTS, 1.05e9, 6144), (varied, 2e9, 3072)):
        chip = build_accelerator(DesignPoint(8, 2, 128, 128, 128, 1 << 27, 1 << 35, 1), constants=constants)
        assert (chip.clock_hz, chip.glb_bandwidth_bytes_per_s) == (clock_hz, per_cycle * clock_hz)


def test_options_and_their_alternatives() -> None:
    assert {name: option.choice for name, option in CONSTANTS.options.items()} == {
        "glb_limit": "fixed",
        "fill_and_drain": "per_fold",
        "multicast": "none",
        "vector_cycles": "nominal",
        "hbm_form": "stacked",
        "residency": "none",
        "grouped": "faster",
    }
    assert set(CONSTANTS.options["hbm_form"].alternatives) == {form.value for form in HbmForm}
    assert CONSTANTS.with_options({"glb_limit": "none"}).option("glb_limit") == "none"


def test_vector_cycles_option_scales_all_and_returns() -> None:
    doubled = CONSTANTS.with_overrides({"vector_cycles.add": 1.5}).with_options({"vector_cycles": "doubled"})
    assert doubled.value("vector_cycles.add") == 3.0
    assert doubled.value("vector_cycles.adam") == 24.0
    assert doubled.with_options({"vector_cycles": "halved"}).value("vector_cycles.adam") == 6.0
    assert CONSTANTS.with_options({"vector_cycles": "doubled"}).with_options({"vector_cycles": "nominal"}) == CONSTANTS


@given(st.sampled_from(sorted(CONSTANTS.entries)), st.floats(min_value=1e-9, max_value=1e15))
def test_override_changes_one_value_and_the_digest(key: str, value: float) -> None:
    changed = CONSTANTS.with_overrides({key: value})
    assert changed.value(key) == value
    assert (changed.digest == CONSTANTS.digest) == (CONSTANTS.value(key) == value)
    assert changed.with_overrides({key: CONSTANTS.value(key)}) == CONSTANTS
    assert all(changed.value(other) == CONSTANTS.value(other) for other in CONSTANTS.entries if other != key)


def test_an_unsaid_option_and_what_it_alone_reads_are_not_varied() -> None:
    none, planned = (CONSTANTS.with_options({"residency": choice}) for choice in ("none", "planned"))
    assert "glb.tile_bytes" not in (*none.uncertain, *none.assumptions)
    assert "residency" not in dict(none.alternatives)
    assert planned != none
    assert planned != planned.with_overrides({"glb.tile_bytes": 4 << 20})
    assert "glb.tile_bytes" in planned.uncertain
    assert ("residency", "none") in planned.alternatives


SHARES = {
    "arrays.stage_share": "pipelining",
    "arrays.choice_share": "sparse_array",
    **{f"arrays.{name}_share": name for name in SWITCHES},
}


@pytest.mark.parametrize("key", SHARES)
def test_what_a_parameter_of_a_chip_reads_is_varied_where_a_chip_has_it(key: str) -> None:
    assert CONSTANTS.with_overrides({key: CONSTANTS.entries[key].high}) != CONSTANTS
    assert set(CONSTANTS.uncertain_with([SHARES[key]])) - set(CONSTANTS.uncertain) == {key}


def test_pickle_keeps_equality_and_hash() -> None:
    copy = pickle.loads(pickle.dumps(CONSTANTS))
    assert copy == CONSTANTS
    assert hash(copy) == hash(CONSTANTS)
    assert isinstance(copy, Constants)


def test_entries_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        CONSTANTS.entries["energy.hbm_pj_per_bit"] = CONSTANTS.entries["l2.bytes_per_mac"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"energy.hbm_pj_per_bits": 1.0}, "energy.hbm_pj_per_bit"),
        ({"nonsense": 1.0}, "known:"),
        ({"glb.bytes_per_cycle": 0.0}, "positive"),
        ({"glb.bytes_per_cycle": -1.0}, "positive"),
        ({"glb.bytes_per_cycle": float("nan")}, "finite"),
        ({"glb.bytes_per_cycle": float("inf")}, "finite"),
        ({"network.phaze.latency_s": -1e-9}, "non-negative"),
    ],
)
def test_faulty_overrides(overrides: dict[str, float], says: str) -> None:
    with pytest.raises(InputError, match=says):
        CONSTANTS.with_overrides(overrides)


def test_unknown_names_get_a_near_miss() -> None:
    with pytest.raises(InputError, match="glb_limit"):
        CONSTANTS.with_options({"glb_limits": "none"})
    with pytest.raises(InputError, match="proportional"):
        CONSTANTS.with_options({"glb_limit": "proportionel"})
    with pytest.raises(InputError, match="multicast"):
        CONSTANTS.option("multi_cast")
    with pytest.raises(InputError, match="energy.link_pj_per_bit"):
        CONSTANTS.value("energy.link_pj")


def test_a_copy_of_the_file_loads_equal(tmp_path) -> None:

    path = tmp_path / "copy.toml"
    path.write_text(resources.files("phaze_opt.hardware").joinpath("constants.toml").read_text())
    assert load_constants(path) == CONSTANTS
