"""Clock, links, lanes and local buffers as axes: what they mean for a chip, its die, its time and its space."""

import json
from dataclasses import replace

import numpy as np
import pytest

from phaze_opt.errors import InputError
from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.calibrated import CalibratedEstimator
from phaze_opt.hardware.architecture_file import ARCHITECTURE_KEYS
from phaze_opt.hardware.chip_template import AXIS, DesignPoint, PointColumns
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import build_accelerator, chips_of
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.hardware.silicon.chip_silicon import Dies, area_mm2_of, chip_power_w
from phaze_opt.hardware.silicon.die_report import die_of
from phaze_opt.hardware.silicon.silicon import link_rate, silicon_of, with_die, with_link_rate
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import architecture_to_json
from phaze_opt.objective.heterogeneous import evaluate_heterogeneous
from phaze_opt.objective.scenario import make_scenario
from phaze_opt.space.axes import Axes, half_steps
from phaze_opt.space.codec import Codec
from phaze_opt.space.known_spaces import die_space, load_space, phaze_space
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI, KIBI, MEBI

NETWORK = load_network("two-level", num_devices=64)
SILICON = silicon_of(7, NETWORK)
CONSTANTS = with_die(load_constants(), SILICON)
DIE = "num_tc=16,num_vc=16,tc_width=128,tc_depth=128,glb_mb=8,glb_bytes_per_cycle=4096,hbm_stacks=4"
OPEN = ("clock_hz", "link_bytes_per_s", "l2_bytes", "vc_l2_bytes")
SPACE = """
[axes]
num_tc = [8]
num_vc = [8]
tc_width = [128]
tc_depth = [128]
vc_width = [64, 128]
glb_mb = [8]
glb_bytes_per_cycle = [4096]
hbm_stacks = [4]
"""
GHZ = 1_000_000_000


def with_gaps() -> SearchSpace:
    """A row of dies of which those with some vector cores are too dense: cooled are fewer, and more."""
    axes = Axes(
        num_tc=(2, 4, 8, 12, 16), num_vc=half_steps(1, 512), tc_width=(32, 128), tc_depth=(32, 128), vc_width=(),
        glb_bytes=(32 * MEBI, 64 * MEBI), hbm_bytes=(), hbm_stacks=(2, 4), micro_batch=(1,),
        glb_bytes_per_cycle=(14336, 15360), clock_hz=(1_050_000_000, 1_750_000_000),
    )  # fmt: skip
    return SearchSpace("gaps", axes, area_budget_um2=826e6, min_area_fraction=0.0, silicon=SILICON)


def test_what_is_not_stated_is_as_it_was():
    space = die_space(SILICON, micro_batches=(1,))
    assert die_space(SILICON).digest.startswith("c1f21e7a98d819fc")
    assert phaze_space().digest.startswith("19ce0448d641edfa")
    point = space.point(0)
    assert [getattr(point, name) for name in OPEN] == [0] * len(OPEN)
    assert not set(OPEN) & set(space.axes.stated)
    said = replace(
        point, clock_hz=round(CONSTANTS.value("design.clock_hz")), link_bytes_per_s=round(link_rate(NETWORK)),
        l2_bytes=16 * point.tc_width * point.tc_depth, vc_l2_bytes=max(1024, 16 * point.vc_width),
    )  # fmt: skip
    plain, same = (chips_of(PointColumns.of([each]), CONSTANTS) for each in (point, said))
    for one, other in zip(_figures(plain), _figures(same), strict=True):
        assert np.array_equal(one, other)
    assert with_link_rate(NETWORK, link_rate(NETWORK)) is with_link_rate(NETWORK, 0.0) is NETWORK


def _figures(chips):
    dies = Dies.of(chips, CONSTANTS)
    scenario = make_scenario("tiny", devices=64, global_batch=256, silicon="die")
    estimates = CalibratedEstimator(CONSTANTS).estimate(Objective(scenario).compiled(0, 1).operators, chips)
    return dies.area.total, dies.power.total, estimates.one_core_s, estimates.spread_s, estimates.energy_j


@pytest.mark.parametrize("estimator", [AnalyticEstimator, CalibratedEstimator])
def test_no_operator_is_slower_with_a_faster_clock_or_larger_local_buffers(estimator):
    """2,000 pairs of chips that differ in clock, local buffers or all of them; bits, no tolerance."""
    operators = Objective(make_scenario("tiny", devices=64, global_batch=256, silicon="die")).compiled(0, 1).operators
    rng, count = np.random.default_rng(7), 2_000

    def drawn(*values):
        return rng.choice(np.array(values, dtype=np.int64), count)

    less = PointColumns(
        num_tc=drawn(1, 2, 3, 8, 12, 32), num_vc=drawn(1, 3, 16, 64), tc_width=drawn(32, 128, 512),
        tc_depth=drawn(32, 64, 256), vc_width=drawn(32, 100, 256), glb_bytes=MEBI * drawn(4, 8, 24, 96),
        hbm_bytes=16 * GIBI * np.ones(count, dtype=np.int64), micro_batch=np.ones(count, dtype=np.int64),
        glb_bytes_per_cycle=drawn(1024, 2048, 6144), hbm_stacks=np.ones(count, dtype=np.int64),
        clock_hz=rng.integers(700_000_000, 1_400_000_000, count), l2_bytes=drawn(100, 1024, 5000, 65536, 1 << 20),
        vc_l2_bytes=drawn(1, 100, 512, 1024, 4096),
    )  # fmt: skip
    changes = {
        "clock_hz": less.clock_hz + rng.integers(1, 700_000_000, count) * rng.integers(0, 2, count),
        "l2_bytes": less.l2_bytes + rng.integers(0, 100_000, count) * rng.integers(0, 2, count),
        "vc_l2_bytes": less.vc_l2_bytes + rng.integers(0, 3000, count) * rng.integers(0, 2, count),
    }
    more = replace(less, **changes)
    priced = estimator(CONSTANTS)
    slow, fast = (priced.estimate(operators, chips_of(points, CONSTANTS)) for points in (less, more))
    for name in ("one_core_s", "spread_s", "traffic_bytes"):
        assert (getattr(fast, name) <= getattr(slow, name)).all()
    for name, values in changes.items():
        alone = priced.estimate(operators, chips_of(replace(less, **{name: values}), CONSTANTS))
        assert (alone.spread_s < slow.spread_s).any(), name
    areas, powers = zip(*((d.area.total, d.power.total) for d in _dies(less, more)), strict=True)
    assert (areas[0] <= areas[1]).all()
    assert (powers[0] <= powers[1]).all()
    assert (powers[0] < powers[1])[less.clock_hz < more.clock_hz].all()


def _dies(*points):
    return [Dies.of(chips_of(each, CONSTANTS), CONSTANTS) for each in points]


def test_lanes_wait_for_a_local_buffer_that_holds_no_two_rounds():
    """12 bytes a lane keep all of it busy: two rounds of two operands and a result of 16 bits; half of them half."""
    operators = Objective(make_scenario("tiny", devices=64, global_batch=256, silicon="die")).compiled(0, 1).operators
    point = DesignPoint(1, 1, 512, 512, 32, 192 * MEBI, 96 * GIBI, 1, 16384, 6)

    def spread_s(vc_l2_bytes):
        chips = chips_of(PointColumns.of([replace(point, vc_l2_bytes=vc_l2_bytes)]), CONSTANTS)
        return AnalyticEstimator(CONSTANTS).estimate(operators, chips).spread_s[0]

    assert np.array_equal(spread_s(0), spread_s(12 * 32))
    assert np.array_equal(spread_s(0), spread_s(1 << 20))
    is_lanes = spread_s(6 * 32) > spread_s(0)
    assert is_lanes.any()
    assert spread_s(3 * 32)[is_lanes] == pytest.approx(2.0 * spread_s(6 * 32)[is_lanes], rel=1e-12)


def test_links_are_paid_for_and_carry_what_they_say():
    fast = load_architecture(f"{DIE},link_gb_per_s=1000", constants=CONSTANTS)
    slow = load_architecture(DIE, constants=CONSTANTS)
    assert link_rate(NETWORK) == 500e9
    reports = [die_of(chip, CONSTANTS) for chip in (slow, fast)]
    links = [{part.name: part.value for part in report.areas}["links"] for report in reports]
    assert links[1] == pytest.approx(2.0 * links[0], rel=1e-12)
    assert reports[1].link_edge_mm == pytest.approx(2.0 * reports[0].link_edge_mm, rel=1e-12)
    watts = [{part.name: part.value for part in report.powers}["links"] for report in reports]
    assert watts[1] == pytest.approx(2.0 * watts[0], rel=1e-12)
    twice = with_link_rate(NETWORK, 1000e9)
    assert [d.bandwidth_bytes_per_s for d in twice.dimensions] == [900e9, 100e9]
    assert [d.latency_s for d in twice.dimensions] == [d.latency_s for d in NETWORK.dimensions]
    scenario = make_scenario("tiny", devices=64, global_batch=256, silicon="die")
    on_twice = replace(scenario, cluster=replace(scenario.cluster, network=twice))
    own = Objective(scenario).evaluate_accelerator(fast)
    theirs = Objective(on_twice).evaluate_accelerator(slow)
    assert own.throughput_samples_per_s == theirs.throughput_samples_per_s
    assert own.throughput_samples_per_s > Objective(scenario).evaluate_accelerator(slow).throughput_samples_per_s


def test_stages_of_one_pipeline_have_equal_links():
    objective = Objective(make_scenario("tiny", devices=16, global_batch=64, silicon="die"))
    slow = DesignPoint(16, 16, 128, 128, 128, 8 * MEBI, 64 * GIBI, 1, 4096, 4, 0, 500 * GHZ)
    fast = replace(slow, link_bytes_per_s=900 * GHZ)
    with pytest.raises(InputError, match="give designs with equal links"):
        evaluate_heterogeneous(objective, [slow, fast])
    found = evaluate_heterogeneous(objective, [fast])
    assert found is not None
    alone = objective.evaluate(fast).throughput_samples_per_s
    assert found.throughput_samples_per_s == pytest.approx(alone, rel=1e-9)
    assert alone > objective.evaluate(slow).throughput_samples_per_s


def test_the_voltage_and_the_power_rise_with_the_clock():
    """Units as (0.55 + 0.15 f)^2 f, memory and links not at all."""
    chips = {ghz: load_architecture(f"{DIE},clock_ghz={ghz}", constants=CONSTANTS) for ghz in (0.8, 1.05, 1.75)}
    reports = {ghz: die_of(chip, CONSTANTS) for ghz, chip in chips.items()}
    arrays = {ghz: {p.name: p.value for p in report.powers}["arrays"] for ghz, report in reports.items()}
    for ghz, watts in arrays.items():
        volts = 0.55 + 0.15 * ghz
        assert reports[ghz].voltage_v == pytest.approx(volts, rel=1e-12)
        assert watts / (volts**2 * ghz) == pytest.approx(arrays[1.05] / (0.7075**2 * 1.05), rel=1e-12)
        assert reports[ghz].area_mm2 == pytest.approx(reports[1.05].area_mm2, rel=1e-12)
    hot = die_of(load_architecture(f"{DIE},clock_ghz=2.1", constants=CONSTANTS), CONSTANTS)
    assert "W/mm^2 is more than 0.95" in " ".join(hot.broken)


def test_a_chip_of_an_axis_is_that_of_its_file(tmp_path):
    """What a search finds is what ``--arch`` and the printed architecture mean."""
    point = DesignPoint(
        16, 16, 128, 128, 64, 8 * MEBI, 64 * GIBI, 1, 4096, 4, 1_100_000_000, 700 * GHZ, 100 * KIBI, 3 * KIBI, 5
    )
    chip = build_accelerator(point, constants=CONSTANTS)
    assert load_architecture(point.inline(), constants=CONSTANTS) == chip
    assert {"clock_ghz", "link_gb_per_s", "l2_kb", "vc_l2_kb", "pipelining"} < ARCHITECTURE_KEYS
    assert "pipelining=db-wls" in point.inline()
    printed = architecture_to_json(chip)
    assert (printed["clock_ghz"], printed["link_gb_per_s"], printed["vc_l2_kb"]) == (1.1, 700, 3)
    assert printed["pipelining"] == "db-wls"
    (tmp_path / "chip.json").write_text(json.dumps({"architecture": printed}))
    assert load_architecture(str(tmp_path / "chip.json"), constants=CONSTANTS) == replace(chip, name="chip")
    assert AXIS["clock_hz"].describe(1_100_000_000) == "a clock of 1.1 GHz"


def test_no_default_die_is_too_dense():
    """At one clock of 1.05 GHz nothing at 7 nm comes near 0.95 W/mm2, so the limit leaves out no die."""
    space = die_space(SILICON, micro_batches=(1,))
    assert space.size == 1_983_866
    points = space.draw(20_000, np.random.default_rng(0))
    dies = Dies.of(chips_of(points, space.constants), space.constants)
    assert (dies.power.total / dies.area.total).max() < 0.7
    assert not space.kept.gap_high.any()


def test_dies_that_are_too_dense_leave_a_gap_that_nothing_points_into():
    space = with_gaps()
    kept = space.kept
    assert (kept.gap_high > kept.gap_low).any()
    everything = list(space.points())
    codec = Codec(space)
    mine = np.flatnonzero(kept.gap_high > kept.gap_low)
    for row in mine:
        for architecture in range(kept.starts[row], kept.starts[row + 1]):
            point = everything[architecture]
            assert space.index(point) == architecture
            assert codec.decode(codec.encode(point)) == point
    chips = chips_of(PointColumns.of(everything), space.constants)
    dies = Dies.of(chips, space.constants)
    assert dies.is_buildable.all()
    assert (dies.power.total / dies.area.total).max() <= 0.95 * (1 + 1e-9)
    rng = np.random.default_rng(2)
    drawn = {p.name: rng.integers(p.low, p.low + p.count, 5000) for p in codec.parameters()}
    assert (codec.decode_indices(drawn) >= 0).all()
    row = int(mine[0])
    inside = int(kept.gap_low[row])
    at = replace(space.positions(everything[kept.starts[row]]), num_vc=inside)
    assert not space.keeps(at)
    broken = die_of(build_accelerator(space.point_at(at), constants=space.constants), space.constants).broken
    assert len(broken) == 1
    assert "W/mm^2" in broken[0]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("clock_ghz = [0, 1]", "value 0 must be a number from 0.7 to 2.1"),
        ("clock_ghz = [1.05, 10]", "value 10 must be a number from 0.7 to 2.1"),
        ("clock_ghz = [1.05, 1.05]", "lists a value twice"),
        ("link_gb_per_s = [-1]", "value -1 must be a number from 0.1 to 100,000 GB/s"),
        ("vc_l2_kb = [0]", "value 0 must be a number from 0.25"),
        ("l2_kb = ['many']", "value 'many' must be a number"),
        ("pipelining = ['base', 'fast']", "value 'fast' must be one of base, pipe, wlbp, dm-wlbp, db-wls, dmdb-wls"),
        ("loop_order = ['weights']", "value 'weights' must be one of full, weight, output, input, weight-output"),
        ("pipelining = [5]", "value 5 must be one of base, pipe"),
    ],
)
def test_wrong_values_are_one_sentence(tmp_path, line, rule):
    (tmp_path / "mine.toml").write_text(SPACE + line + "\n")
    with pytest.raises(InputError) as refused:
        load_space(tmp_path / "mine.toml", silicon=SILICON, micro_batches=(1,))
    assert rule in str(refused.value)
    assert refused.value.key == f"axes.{line.split()[0]}"
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("line", ["clock_ghz = [1.05, 1.4]", "link_gb_per_s = [500, 700]"])
def test_the_tables_refuse_what_they_know_no_price_of(tmp_path, line):
    text = SPACE.replace("glb_bytes_per_cycle = [4096]\nhbm_stacks = [4]\n", "hbm_gb = [64]\n")
    (tmp_path / "mine.toml").write_text(text + line + "\n")
    with pytest.raises(InputError, match="are of dies, as the 22 nm tables do not price them") as refused:
        load_space(tmp_path / "mine.toml", micro_batches=(1,))
    assert refused.value.key == line.split()[0]
    space = load_space(tmp_path / "mine.toml", silicon=SILICON, micro_batches=(1,))
    assert space.size == 4


def test_sub_stages_are_axes_of_dies_and_of_the_tables(tmp_path):
    tables = SPACE.replace("glb_bytes_per_cycle = [4096]\nhbm_stacks = [4]\n", "hbm_gb = [64]\n")
    for text, silicon in ((SPACE, SILICON), ("min_area_fraction = 0.0\n" + tables, None)):
        (tmp_path / "mine.toml").write_text(text + 'pipelining = ["dm-wlbp", "base", "pipe"]\n')
        space = load_space(tmp_path / "mine.toml", silicon=silicon, micro_batches=(1,))
        assert space.ranges()["pipelining"]["values"] == ["base", "pipe", "dm-wlbp"]
        points = list(space.points())
        assert sorted({point.pipelining for point in points}) == [1, 2, 4]
        codec = Codec(space)
        assert all(codec.decode(codec.encode(point)) == point for point in points)
        areas = {}
        for point in points:
            areas.setdefault(point.pipelining, []).append(
                area_mm2_of(build_accelerator(point, constants=space.constants), space.constants)
            )
        assert areas[1] == areas[2] < areas[4]
    with pytest.raises(InputError, match="value fast must be one of base, pipe|value 'fast' must be one of base, pipe"):
        load_architecture(f"{DIE},pipelining=fast", constants=CONSTANTS)
    with pytest.raises(InputError, match="pipelining = 9 must be from 1 to 6"):
        build_accelerator(replace(points[0], pipelining=9), constants=CONSTANTS)


def test_switches_of_mappings_are_axes_of_dies_and_of_the_tables(tmp_path):
    tables = SPACE.replace("glb_bytes_per_cycle = [4096]\nhbm_stacks = [4]\n", "hbm_gb = [64]\n")
    lines = (
        'tiling = ["fixed", "full"]\nloop_order = ["output"]\ncore_split = ["rows"]\narray_shape = ["fixed", "part"]\n'
    )
    for text, silicon in ((SPACE, SILICON), ("min_area_fraction = 0.0\n" + tables, None)):
        (tmp_path / "mine.toml").write_text(text + lines)
        space = load_space(tmp_path / "mine.toml", silicon=silicon, micro_batches=(1,))
        points = list(space.points())
        assert {(point.tiling, point.array_shape) for point in points} == {(2, 1), (2, 2), (3, 1), (3, 2)}
        codec = Codec(space)
        assert all(codec.decode(codec.encode(point)) == point for point in points)
        for point in points:
            chip = build_accelerator(point, constants=space.constants)
            assert load_architecture(point.inline(), constants=space.constants) == chip
            assert "loop_order=output" in point.inline()
            if point.array_shape == 2:
                built = build_accelerator(replace(point, array_shape=1), constants=space.constants)
                assert area_mm2_of(chip, space.constants) > area_mm2_of(built, space.constants)
    with pytest.raises(InputError, match="array_shape = 4 must be from 0 to 3"):
        build_accelerator(replace(points[0], array_shape=4), constants=CONSTANTS)


def test_the_tables_have_areas_of_local_buffers(tmp_path):
    text = SPACE.replace("glb_bytes_per_cycle = [4096]\nhbm_stacks = [4]\n", "hbm_gb = [64]\n")
    (tmp_path / "mine.toml").write_text("min_area_fraction = 0.0\n" + text + "l2_kb = [64, 256]\nvc_l2_kb = [1, 2]\n")
    space = load_space(tmp_path / "mine.toml", micro_batches=(1,))
    assert space.size == 8
    powers = chip_power_w(chips_of(PointColumns.of(list(space.points())), load_constants()), NETWORK, load_constants())
    assert len(set(powers)) == 8


@pytest.mark.parametrize(
    ("text", "key"), [("clock_ghz=0", "clock_ghz"), ("clock_ghz=10", "clock_ghz"), ("link_gb_per_s=0", "link_gb_per_s")]
)
def test_a_wrong_architecture_is_one_sentence(text, key):
    with pytest.raises(InputError) as refused:
        load_architecture(f"{DIE},{text}", constants=CONSTANTS)
    assert refused.value.key == key
    with pytest.raises(InputError, match="must be a number from 0.7 to 2.1"):
        build_accelerator(DesignPoint(8, 8, 64, 64, 64, MEBI, GIBI, 1, clock_hz=3 * GHZ), constants=CONSTANTS)
