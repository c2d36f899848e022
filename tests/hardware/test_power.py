"""Energy table and TDP: the formula of semantics 7 by hand, and its monotonicity."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.area import access_energies, area_mm2, load_energy_table, tdp_w, tdp_w_table
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import build_accelerator
from phaze_opt.hardware.networks import load_network

CONSTANTS = load_constants()
NETWORK = load_network("two-level", num_devices=64, constants=CONSTANTS)
designs = st.builds(
    lambda tc, vc, width, depth, glb, hbm: build_accelerator(
        DesignPoint(1 << tc, 1 << vc, 1 << width, 1 << depth, 1 << width, 1 << glb, hbm << 30, 1), constants=CONSTANTS
    ),
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(20, 28),
    st.sampled_from([16, 32, 64, 80]),
)


def test_tdp_of_the_reference_by_hand() -> None:
    chip = build_accelerator(DesignPoint(8, 2, 128, 128, 128, 128 << 20, 32 << 30, 1), constants=CONSTANTS)
    per_cycle_pj = (
        8 * 128 * 128 * (0.93807 + 0.222334 + 0.296446)
        + 8 * (128 + 128) / 4 * 14.352644
        + 2 * 128 * (0.93807 + 0.103455 + 0.13794)
        + 6144 * 316.129794 / 8
    )
    by_hand = 1.05e9 * per_cycle_pj * 1e-12 + 800e9 * 8 * 5e-12 + (450e9 + 50e9) * 8 * 10e-12 + 0.05 * 278.82667631216
    assert tdp_w(chip, NETWORK, CONSTANTS) == pytest.approx(by_hand, rel=1e-12)


def test_energy_table_entries() -> None:
    table = load_energy_table()
    assert (table.mac_pj, table.l1_read_pj, table.l1_write_pj) == (0.93807, 0.222334, 0.296446)
    l2_reads = table.l2_read_pj(16 * np.array([64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536]))
    assert list(l2_reads) == [
        2.508614, 2.631984, 2.886184, 3.442069, 4.450109, 5.124409, 7.372894, 9.310594, 14.352644, 18.697244, 26.758944,
    ]  # fmt: skip
    glb_reads = table.glb_read_pj((1 << 20) * np.array([2, 4, 8, 16, 32, 64, 128]))
    assert list(glb_reads) == [36.422294, 53.619794, 77.268294, 108.585294, 155.924294, 220.574294, 316.129794]


def test_access_energies_in_joules() -> None:
    chip = build_accelerator(DesignPoint(1, 1, 64, 64, 64, 64 << 20, 32 << 30, 1), constants=CONSTANTS)
    energies = access_energies(AcceleratorTable.from_accelerators([chip, chip]), CONSTANTS)
    assert energies.mac_j == pytest.approx([0.93807e-12] * 2)
    assert energies.l1_j_per_mac == pytest.approx([0.51878e-12] * 2)
    assert energies.l2_j_per_byte == pytest.approx([7.372894e-12 / 8] * 2)
    assert energies.glb_j_per_byte == pytest.approx([220.574294e-12 / 8] * 2)
    assert energies.hbm_j_per_byte == pytest.approx([40e-12] * 2)
    assert energies.link_j_per_byte == pytest.approx([80e-12] * 2)
    assert energies.lane_j == pytest.approx([1.179465e-12] * 2)


@given(st.lists(designs, min_size=1, max_size=5))
def test_table_equals_scalar(chips) -> None:
    table = tdp_w_table(AcceleratorTable.from_accelerators(chips), NETWORK, CONSTANTS)
    assert table == pytest.approx([tdp_w(chip, NETWORK, CONSTANTS) for chip in chips], rel=1e-14)


@given(designs, st.sampled_from(["energy.hbm_pj_per_bit", "energy.link_pj_per_bit", "energy.static_w_per_mm2"]))
def test_every_assumed_term_counts(chip, key: str) -> None:
    doubled = CONSTANTS.with_overrides({key: 2 * CONSTANTS.value(key)})
    rise = tdp_w(chip, NETWORK, doubled) - tdp_w(chip, NETWORK, CONSTANTS)
    expected = {
        "energy.hbm_pj_per_bit": chip.hbm_bandwidth_bytes_per_s * 40e-12,
        "energy.link_pj_per_bit": 500e9 * 80e-12,
        "energy.static_w_per_mm2": 0.05 * area_mm2(chip),
    }
    assert rise == pytest.approx(expected[key], rel=1e-6)
