"""What holds a chip back, against the space itself: a step is legal where the space has it and no budget breaks."""

from dataclasses import replace

import numpy as np
import pytest

from phaze_opt.hardware.chip_template import CHIP_AXES
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import build_accelerator
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.silicon.chip_silicon import power_w_of
from phaze_opt.hardware.silicon.silicon import silicon_of, with_die
from phaze_opt.objective.caveats import RULES, Answer
from phaze_opt.objective.chip_limits import binding_limits, design_of, ends_of, free_keys
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.scenario import make_scenario
from phaze_opt.space.axes import Axes
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import MEBI

NETWORK = load_network("two-level", num_devices=8)
SILICON = silicon_of(7, NETWORK)
KNOWN = with_die(load_constants(), SILICON)
AXES = Axes(
    num_tc=(4, 8, 16), num_vc=(8, 16), tc_width=(64, 128), tc_depth=(128,), vc_width=(),
    glb_bytes=(4 * MEBI, 8 * MEBI, 16 * MEBI), glb_bytes_per_cycle=(2048, 4096, 6144),
    hbm_bytes=(), hbm_stacks=(1, 2, 4, 6), micro_batch=(1,),
)  # fmt: skip
SPACE = SearchSpace("dies", AXES, area_budget_um2=560e6, min_area_fraction=0.0, silicon=SILICON)
MAX_TDP_W = 240.0


def stepped(point, axis):
    """The point with the next value of one parameter, by its list of values; None at the end."""
    values = getattr(AXES, axis.name)
    rest = values[values.index(getattr(point, axis.name)) + 1 :] if values else ()
    if not rest:
        return None
    other = replace(point, **{axis.name: rest[0]})
    # What follows from another parameter follows again.
    return replace(other, vc_width=other.tc_width, hbm_bytes=other.hbm_stacks * SILICON.stack.capacity_bytes)


def power_of(point):
    return power_w_of(build_accelerator(point, constants=KNOWN), NETWORK, KNOWN)


def test_a_limit_binds_where_the_larger_chip_is_none_of_the_space():
    seen = set()
    for point in list(SPACE.points())[::7]:
        if power_of(point) > MAX_TDP_W:
            continue
        limits = binding_limits(point, SPACE, NETWORK, KNOWN, max_tdp_w=MAX_TDP_W)
        steps = {axis.key: stepped(point, axis) for axis in CHIP_AXES}
        steps = {key: other for key, other in steps.items() if other is not None}
        illegal = {
            key for key, other in steps.items() if not SPACE.contains(other) or power_of(other) > MAX_TDP_W
        }  # fmt: skip
        assert {key for limit in limits for key in limit.keys} == illegal
        assert set(free_keys(point, SPACE, limits)) == set(steps) - illegal
        assert {limit.name: "num_tc" in limit.keys for limit in limits}.get("banks of the buffer", False) is False
        seen |= {limit.name for limit in limits}
    assert seen == {
        "the area of 560 mm2", "the TDP of 240 W", "banks of the buffer", "places for HBM along the edge"
    }  # fmt: skip


def test_a_scenarios_own_area_binds_before_the_spaces():
    point = next(point for point in SPACE.points() if point.num_tc == 8)
    area = Objective(make_scenario("tiny", devices=8, global_batch=16, silicon="die")).evaluate(point).area_mm2
    names = {each.name for each in binding_limits(point, SPACE, NETWORK, KNOWN, max_area_mm2=area)}
    assert f"the area of {area:g} mm2" in names


def test_ends_have_every_parameter_of_dies_the_rate_of_the_buffer_too():
    for point in SPACE.points_at(np.arange(0, SPACE.size, 11)):
        chip = build_accelerator(point, constants=KNOWN)
        assert design_of(chip, 1, SPACE) == point
        expected = {
            axis.key for axis in CHIP_AXES
            if len(values := getattr(AXES, axis.name)) > 1
            and getattr(point, axis.name) in (values[0], values[-1])
            and getattr(point, axis.name) != 1
        }  # fmt: skip
        assert {end.key for end in ends_of(point, SPACE)} == expected


@pytest.mark.parametrize("is_best", [True, False])
def test_notes_name_ends_and_limits_of_a_best_die(is_best):
    scenario = make_scenario("tiny", devices=8, global_batch=16, silicon="die")
    point = next(p for p in SPACE.points() if (p.glb_bytes_per_cycle, p.glb_bytes) == (2048, 4 * MEBI))
    evaluation = Objective(scenario).evaluate(point) if is_best else None
    chip = build_accelerator(point, constants=KNOWN)
    answer = Answer(KNOWN, chip, evaluation, scenario if is_best else None, SPACE, is_best=is_best)
    edge = RULES["edge_of_space"](answer)
    assert "glb_mb at its lowest, 4" in edge
    assert "glb_bytes_per_cycle at its lowest, 2048" in edge
    assert ("better ones may lie beyond" in edge) == is_best
    assert ("banks of the buffer (glb_bytes_per_cycle)" in RULES["binding_limits"](answer)) == is_best
