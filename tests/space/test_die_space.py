"""Spaces of dies: every point could be built, every proposal is a point, the frontier is that of all pairs."""

from dataclasses import replace

import numpy as np
import pytest

from phaze_opt.errors import InputError
from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.calibrated import CalibratedEstimator
from phaze_opt.hardware.chip_template import AXIS, NEVER_SLOWS, ORDERED_KINDS, PointColumns, values_of
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import build_accelerator, chips_of
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.hardware.silicon.chip_silicon import Dies, chip_area_mm2
from phaze_opt.hardware.silicon.die_report import die_report
from phaze_opt.hardware.silicon.silicon import silicon_of
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.scenario import build_space, make_scenario
from phaze_opt.objective.scenario_options import ScenarioOptions, SpaceOptions
from phaze_opt.objective.silicon_options import SiliconForm, silicon_form
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.run import run_search
from phaze_opt.space.axes import Axes, half_steps
from phaze_opt.space.codec import Codec
from phaze_opt.space.known_spaces import DIE_BUDGET_MM2, die_space, load_space, phaze_space
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI, MEBI

NETWORK = load_network("two-level", num_devices=64)
SILICON = silicon_of(7, NETWORK)
WHOLE = die_space(SILICON, micro_batches=(1,))
SMALL = SearchSpace(
    "small",
    Axes(
        num_tc=(8, 12, 16), num_vc=(4, 8, 16), tc_width=(64, 128), tc_depth=(128,), vc_width=(),
        glb_bytes=(4 * MEBI, 8 * MEBI, 16 * MEBI), glb_bytes_per_cycle=(2048, 4096, 6144), hbm_bytes=(),
        hbm_stacks=(1, 3, 6), micro_batch=(1, 2),
    ),
    area_budget_um2=560e6,
    min_area_fraction=0.0,
    silicon=SILICON,
)  # fmt: skip


def test_the_default_space():
    assert WHOLE.num_candidates == 12 * 5 * 5 * 16 * 6 * 18 * 18
    assert WHOLE.size == 1_983_866
    assert WHOLE.restrict(max_area_mm2=574.0).size == 1_091_143
    assert half_steps(1, 12) == (1, 2, 3, 4, 6, 8, 12)
    assert half_steps(4, 192)[-3:] == (96, 128, 192)


def test_every_point_could_be_built_and_every_other_could_not():
    """By `die_report`, which prices one chip and says what it breaks."""
    rng = np.random.default_rng(0)
    for point in WHOLE.draw(60, rng):
        report = die_report(build_accelerator(point, constants=WHOLE.constants), NETWORK)
        assert not [rule for rule in report.broken if "W/mm^2" not in rule]
        assert report.area_mm2 <= DIE_BUDGET_MM2
        assert point.hbm_bytes == 16 * GIBI * point.hbm_stacks
    outside = 0
    for _ in range(60):
        places = {name: int(rng.integers(len(getattr(WHOLE.axes, name)))) for name in WHOLE.axes.stated}
        positions = replace(WHOLE.positions(WHOLE.point(0)), **places)
        report = die_report(build_accelerator(WHOLE.point_at(positions), constants=WHOLE.constants), NETWORK)
        is_legal = report.area_mm2 <= DIE_BUDGET_MM2 and not [r for r in report.broken if "W/mm^2" not in r]
        assert WHOLE.keeps(positions) == is_legal
        outside += not is_legal
    assert outside > 10


def test_indices_and_parameters_name_the_same_points():
    codec = Codec(SMALL)
    points = list(SMALL.points())
    assert len(set(points)) == SMALL.size > 100
    for index, point in enumerate(points):
        assert SMALL.index(point) == index
        assert codec.decode(codec.encode(point)) == point
    rng = np.random.default_rng(1)
    drawn = {known.name: rng.integers(known.low, known.low + known.count, 5000) for known in Codec(WHOLE).parameters()}
    found = WHOLE.columns(Codec(WHOLE).decode_indices(drawn))
    chips = chips_of(found, WHOLE.constants)
    assert Dies.of(chips, WHOLE.constants).is_buildable.all()
    assert (chip_area_mm2(chips, WHOLE.constants) <= DIE_BUDGET_MM2).all()


@pytest.mark.parametrize("budget_w", [None, 230.0])
def test_the_frontier_is_that_of_all_pairs(budget_w):
    frontier = SMALL.frontier_within(budget_w)
    within = list(SMALL.points())
    if budget_w is not None:
        powers = [die_report(build_accelerator(p, constants=SMALL.constants), NETWORK).power_w for p in within]
        within = [point for point, power in zip(within, powers, strict=True) if power <= budget_w]
        assert 0 < len(within) < SMALL.size

    def beats(other, point):
        same = [name for name in ("num_tc", "num_vc", "tc_width", "tc_depth", "micro_batch")]
        return (
            other != point
            and all(getattr(other, name) == getattr(point, name) for name in same)
            and all(getattr(other, name) >= getattr(point, name) for name in NEVER_SLOWS)
        )

    expected = [point for point in within if not any(beats(other, point) for other in within)]
    assert list(frontier.points()) == expected
    assert [frontier.index(point) for point in expected] == list(range(len(expected)))
    assert frontier.index(expected[0]) == 0
    left_out = next(point for point in within if point not in expected)
    assert not frontier.contains(left_out)
    more = SMALL.frontier_within(budget_w, also=(left_out,))
    added = [replace(left_out, micro_batch=value) for value in (1, 2)]
    assert sorted(map(values_of, more.points())) == sorted(map(values_of, [*expected, *added]))


@pytest.mark.parametrize("estimator", [AnalyticEstimator, CalibratedEstimator])
def test_more_of_what_never_slows_lengthens_no_operator(estimator):
    scenario = make_scenario("bert-large", devices=64, global_batch=256, silicon="die")
    from phaze_opt.objective.evaluate import Objective

    objective = Objective(scenario)
    operators = objective.compiled(0, 1).operators
    rng = np.random.default_rng(3)
    less = WHOLE.draw(400, rng)
    changes = {}
    for name in ("glb_bytes", "glb_bytes_per_cycle", "hbm_stacks"):
        changes[name] = getattr(less, name) * rng.choice([1, 2], len(less))
    changes["hbm_bytes"] = changes["hbm_stacks"] * 16 * GIBI
    more = replace(less, **changes)
    priced = estimator(objective.constants)
    slow, fast = (priced.estimate(operators, chips_of(p, objective.constants)) for p in (less, more))
    for name in ("one_core_s", "spread_s", "traffic_bytes"):
        assert (getattr(fast, name) <= getattr(slow, name)).all()
    assert (
        chip_area_mm2(chips_of(more, objective.constants), objective.constants)
        >= chip_area_mm2(chips_of(less, objective.constants), objective.constants)
    ).all()


@pytest.fixture(scope="module")
def sparse():
    """The objective of a model with sparse weights, and its operators."""
    objective = Objective(
        make_scenario("bert-large", devices=64, global_batch=256, silicon="die", sparsity="2:4,transposable=yes")
    )
    return objective, objective.compiled(0, 1).operators


@pytest.mark.parametrize("estimator", [AnalyticEstimator, CalibratedEstimator])
@pytest.mark.parametrize("name", ORDERED_KINDS)
def test_kinds_that_are_never_slower_lengthen_no_operator(estimator, name, sparse):
    """Every pair that is said to be ordered, over all operators of a model with sparse weights on drawn dies."""
    objective, operators = sparse
    drawn = WHOLE.draw(20, np.random.default_rng(11))
    priced = estimator(objective.constants)
    found = [
        priced.estimate(operators, chips_of(replace(drawn, **{name: np.full(len(drawn), kind)}), objective.constants))
        for kind in range(1, len(AXIS[name].choices) + 1)
    ]
    gained = 0
    for slower, other in AXIS[name].no_slower:
        for figure in ("one_core_s", "spread_s", "traffic_bytes"):
            slow, fast = (getattr(found[kind - 1], figure) for kind in (slower, other))
            assert (fast <= slow).all()
            gained += int((fast < slow).any())
    assert gained


def test_the_frontier_counts_kinds_that_are_never_slower():
    """Of all pairs of dies, with every kind of pipelining and two of sparse arrays."""
    axes = replace(SMALL.axes, pipelining=tuple(range(1, 7)), sparse_array=(1, 3), micro_batch=(1,), num_tc=(4, 6))
    space = replace(SMALL, axes=axes)
    every = list(space.points())

    def is_no_slower(other, point):
        return (
            all(getattr(other, name) == getattr(point, name) for name in ("num_tc", "num_vc", "tc_width", "tc_depth"))
            and all(getattr(other, name) >= getattr(point, name) for name in NEVER_SLOWS)
            and all(
                getattr(other, name) == getattr(point, name)
                or (getattr(point, name), getattr(other, name)) in AXIS[name].no_slower
                for name in ORDERED_KINDS
            )
        )

    expected = [p for p in every if not any(other != p and is_no_slower(other, p) for other in every)]
    assert list(space.frontier_within(None).points()) == expected
    assert 0 < len(expected) < len(every) / 10


def test_capacities_are_stacks(tmp_path):
    options = SpaceOptions(hbm_gb=(64, 80))
    space = build_space(options, silicon=SILICON)
    assert space.axes.hbm_stacks == (4, 5)
    assert {point.hbm_bytes // GIBI for point in space.draw(50, np.random.default_rng(0))} == {64, 80}
    with pytest.raises(InputError, match="40 GB is no whole number of stacks of hbm2e, which have 16 GB"):
        build_space(SpaceOptions(hbm_gb=(40,)), silicon=SILICON)
    assert build_space(SpaceOptions(space="phaze"), silicon=SILICON).axes.hbm_stacks == (2, 4, 5)
    with pytest.raises(InputError, match="'die' is of dies; leave out --silicon phaze"):
        build_space(SpaceOptions(space=SiliconForm.DIE.value))
    file = tmp_path / "mine.toml"
    file.write_text(
        "[axes]\nnum_tc = [8]\nnum_vc = [8]\ntc_width = [128]\ntc_depth = [128]\nglb_mb = [8, 16]\n"
        "glb_bytes_per_cycle = [4096, 8192]\nhbm_stacks = {low = 1, high = 4, step = 1}\n"
    )
    mine = load_space(file, silicon=SILICON, micro_batches=(1,))
    assert mine.axes.hbm_stacks == (1, 2, 3, 4)
    assert mine.size == 12, "8 MB has no banks for 8,192 bytes a cycle"
    file.write_text(file.read_text() + "hbm_gb = [16, 500]\n")
    with pytest.raises(InputError, match="give hbm_stacks or hbm_gb, not both"):
        load_space(file, silicon=SILICON, micro_batches=(1,))
    with pytest.raises(InputError, match="stacks of HBM are of dies; give hbm_gb"):
        load_space(file.with_name("mine.toml"), micro_batches=(1,))


def test_dies_leave_the_tables_as_they_are():
    plain, dies = (make_scenario("bert-large", devices=64, global_batch=256, silicon=word) for word in ("phaze", "die"))
    assert plain.silicon is None
    assert dies.digest == make_scenario("bert-large", devices=64, global_batch=256).digest != plain.digest
    constants = dies.constants_of()
    assert dies.constants_of(constants) == constants
    assert phaze_space(silicon=SILICON).digest != phaze_space().digest
    point = phaze_space().point(0)
    assert (point.glb_bytes_per_cycle, point.hbm_stacks) == (0, 0)
    assert PointColumns.of([point]).point(0) == point


@pytest.mark.parametrize(
    ("options", "space", "form"),
    [
        ({}, "", SiliconForm.DIE),
        ({}, "die", SiliconForm.DIE),
        ({}, "mine.toml", SiliconForm.DIE),
        ({}, "phaze", SiliconForm.PHAZE),
        ({"silicon": "die"}, "phaze", SiliconForm.DIE),
        ({"silicon": "phaze"}, "", SiliconForm.PHAZE),
        ({"plans": "phaze"}, "", SiliconForm.DIE),
        ({"published_form": "phaze"}, "", SiliconForm.PHAZE),
    ],
)
def test_chips_are_dies_unless_phazes_form_or_space_is_named(options, space, form):
    assert silicon_form(ScenarioOptions(**options), space) is form


def test_a_chip_is_priced_by_the_silicon_that_it_is_of():
    text = "num_tc=8,num_vc=8,tc_width=64,tc_depth=64,glb_mb=8,hbm_gb=32"
    objectives = [Objective(make_scenario("tiny", devices=8, global_batch=8, silicon=each)) for each in SiliconForm]
    chips = [load_architecture(text, constants=objective.constants) for objective in objectives]
    for objective, own, other in zip(objectives, chips, reversed(chips), strict=True):
        assert objective.evaluate_accelerator(own).is_feasible
        with pytest.raises(InputError, match="build it with the objective's constants"):
            objective.evaluate_accelerator(other)


@pytest.mark.parametrize("values", [(("die.power.most_w_per_mm2", 0.55),), (("die.power.mac_pj", 2.0),)])
def test_the_dies_of_a_world_are_those_that_its_powers_leave(values):
    """Cooling is a rule of the space, so powers decide what is kept."""
    space = replace(SMALL, axes=replace(SMALL.axes, glb_bytes_per_cycle=(4096, 8192)), area_budget_um2=826e6)
    space = replace(space, silicon=replace(SILICON, values=values))
    everything = replace(space, silicon=replace(SILICON, values=(("die.power.most_w_per_mm2", 9.0),)))
    columns = everything.columns(np.arange(everything.size))
    assert 0 < space.size < everything.size
    assert space.size == np.count_nonzero(space.builds(columns))
    assert space.builds(space.columns(np.arange(space.size))).all()


def test_constants_that_a_die_passes_over_are_refused():
    for key in ("hbm.stack_bandwidth_bytes_per_s", "energy.link_pj_per_bit"):
        changed = load_constants().with_overrides({key: 2.0 * load_constants().value(key)})
        with pytest.raises(InputError, match="of the tables at 22 nm; dies have their own"):
            make_scenario("tiny", devices=8, global_batch=8).constants_of(changed)


def test_a_search_has_one_silicon(tmp_path):
    config = SearchConfig(strategy="random", num_trials=1, work_dir=tmp_path)
    for silicon, space in ((None, phaze_space()), ("phaze", SMALL)):
        scenario = make_scenario("tiny", devices=64, global_batch=64, silicon=silicon)
        with pytest.raises(InputError, match="other silicon than the scenario"):
            run_search(config, scenario=scenario, space=space)
    assert not list(tmp_path.iterdir())
