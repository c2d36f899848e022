"""Layer fusion of a plan's stages: never slower, replayed layer by layer, refused where its bounds do not hold."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from kits.scenarios import make_point

from phaze_opt.cost.step_time import StepTime
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.errors import InputError, PluginFaultError
from phaze_opt.graph.residency import with_reserve
from phaze_opt.hardware.accelerator import table_of
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective import layer_fusion
from phaze_opt.objective.best_placement import bound_option, solve_option
from phaze_opt.objective.bounds import bound_points
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.heterogeneous import evaluate_heterogeneous
from phaze_opt.objective.layer_fusion import fuse_step
from phaze_opt.objective.scenario import make_scenario
from phaze_opt.schedule.layer_fusion import FIRST, INNER, LAST, ExactFuser, FusionGroup
from phaze_opt.search.run import check_pruner
from phaze_opt.units import MEBI
from phaze_opt.workload.plan import Recompute

CHIP = "num_tc=16, num_vc=16, tc_width=128, tc_depth=128, glb_mb={}, hbm_gb=80, hbm_gb_per_s=820"
"""Arrays that wait for memory."""
POINT = make_point(num_tc=16, num_vc=16, tc_width=128, tc_depth=128, glb_bytes=64 * MEBI, hbm_stacks=1)
METRICS = ("energy_per_iteration_j", "tc_utilisation")


def job(fuser: str | None = None, **changes: object):
    given = {"devices": 8, "global_batch": 64, "sequence_length": 256, "micro_batch": (2,), "tensor_parallel": (1,)}
    given |= {"pipeline": (1,), "interleave": (1,)}
    return Objective(make_scenario("bert-large", layer_fusion=fuser, **(given | changes)))


def chip(objective: Objective, glb_mb: int = 64):
    return load_architecture(CHIP.format(glb_mb), constants=objective.constants)


def fused(objective: Objective, name: str, glb_mb: int = 64):
    accelerator = chip(objective, glb_mb)
    found = objective.plan(accelerator)
    network = plan_network(objective.scenario.cluster.network, found.ranked.plan)
    clock = objective._clock(accelerator)
    return fuse_step(found.step, clock, found.layer_times, network=network, name=name), found, clock


def test_without_a_fuser_nothing_changes_and_with_one_steps_are_faster() -> None:
    plain, exact, bred = (job(name) for name in (None, "exact", "genetic"))
    found = {each.scenario.layer_fusion: each.evaluate_accelerator(chip(each), 1) for each in (plain, exact, bred)}
    seconds = {name: each.iteration_time_s for name, each in found.items()}
    assert seconds["exact"] <= seconds["genetic"] <= seconds[""] * (1 - 1e-4)
    joules, busy = ({name: getattr(each, key) for name, each in found.items()} for key in METRICS)
    assert joules["exact"] < joules[""]
    assert busy["exact"] * seconds["exact"] == pytest.approx(busy[""] * seconds[""], rel=1e-9)
    assert sum(vars_of(found["exact"].breakdown)) == pytest.approx(seconds["exact"], rel=1e-9)
    assert found["exact"].throughput_bound_samples_per_s >= found["exact"].throughput_samples_per_s
    assert replace(exact.scenario, layer_fusion="").digest == plain.scenario.digest != exact.scenario.digest


def saved_s(chain) -> float:
    """What groups save over layers each alone."""
    alone_s = layer_fusion.group_layers_s(chain.problem, layer_fusion.no_groups(chain.problem))
    return float((alone_s - chain.layers_s).sum())


def vars_of(breakdown) -> list[float]:
    return [getattr(breakdown, name) for name in type(breakdown).__slots__]


def test_groups_are_what_their_layers_take_one_by_one() -> None:
    """A replay: every layer of every group is scheduled again on a chip with the buffer that the reserve leaves."""
    step, found, clock = fused(job(), "exact")
    (layer,) = {found.step.graph.layers[kind] for kind in found.step.graph.cut.units[0]}
    forward, backward = step.chains
    assert saved_s(forward) > 0 < saved_s(backward)
    for chain, graph, border in (
        (forward, layer.forward, layer.forward_border),
        (backward, layer.backward, layer.backward_border),
    ):
        total = saved_j = 0.0
        for group in chain.groups:
            choice = chain.problem.choices[group.choice]
            assert choice.num_parts == 1
            num_bytes = border.entering.num_bytes * min(2, group.stop - group.first - 1)
            eighth = clock.accelerator.glb_bytes / 8
            left = clock.with_buffer(int(clock.accelerator.glb_bytes - -(-num_bytes // eighth) * eighth))
            for place in range(group.first, group.stop):
                has_input, gives = place > group.first, place < group.stop - 1 and chain is backward
                own = with_reserve(graph, border, has_input=has_input, spares_output=gives, has_weights=False)
                total += left.schedule(own).makespan_s
                alone, grouped = clock.estimate(graph.operators), left.estimate(own.operators)
                saved_j += float(alone.energy_j.sum() - grouped.energy_j.sum())
        assert chain.saved_j == pytest.approx(saved_j, rel=1e-9)
        assert saved_j > 0.0
        assert chain.layers_s.sum() == pytest.approx(total, rel=1e-12)
    (run,) = {chain.problem.num_layers for chain in step.chains}
    passes = found.step.num_micro_batches * found.ranked.plan.data * found.step.model.num_units // run
    assert step.saved_j == pytest.approx(passes * (forward.saved_j + backward.saved_j), rel=1e-12)
    assert step.time.seconds < step.unfused_s == pytest.approx(found.ranked.time.seconds, rel=1e-9)


def test_backward_of_stages_that_recompute_is_left_alone_and_forward_writes() -> None:
    step, found, _ = fused(job(recompute="full"), "exact")
    assert {*found.ranked.plan.recomputes} == {Recompute.FULL}
    assert len(step.chains) == 1
    kept, _, _ = fused(job(), "exact")
    # Backward needs what forward hands on here and there, so forward is the same.
    assert saved_s(step.chains[0]) == pytest.approx(saved_s(kept.chains[0]), rel=1e-9)


def test_a_buffer_of_tiles_alone_gains_nothing() -> None:
    step, _, _ = fused(job(), "exact", glb_mb=1)
    assert all(saved_s(chain) == 0.0 for chain in step.chains)
    assert step.time.seconds == step.unfused_s


@pytest.mark.parametrize("glb_mb", [1, 16, 64])
def test_no_plan_in_any_groups_is_faster_than_the_bound(glb_mb: int) -> None:
    """The plans of every degree alone, and the one that is chosen of all: none exceeds what the choice allows."""
    free = job("exact", tensor_parallel=(1, 2), pipeline=(1, 2))
    found = free.evaluate_planned(chip(free, glb_mb))
    bound = found.evaluation.throughput_bound_samples_per_s
    assert bound == pytest.approx(64 / found.fused.bound_s)
    for tensor, pipeline in product((1, 2), (1, 2)):
        one = job("exact", tensor_parallel=(tensor,), pipeline=(pipeline,))
        assert one.evaluate_planned(chip(one, glb_mb)).evaluation.throughput_samples_per_s <= bound * (1 + 1e-12)
    assert found.evaluation.rate_gap < 0.01


def test_a_step_that_groups_would_not_shorten_is_said_to_run_each_layer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is priced is what is told: no groups, where their step would be longer."""
    price, prices = layer_fusion.price_step, []

    def longer_in_groups(*given: Any) -> StepTime:
        prices.append(price(*given))
        return replace(prices[-1], matmul_s=prices[-1].matmul_s + (len(prices) == 2))

    monkeypatch.setattr(layer_fusion, "price_step", longer_in_groups)
    step, _, _ = fused(job(), "exact")
    assert len(prices) == 3
    assert step.time.seconds == step.unfused_s
    assert all(saved_s(chain) == 0.0 for chain in step.chains)
    assert "every layer runs alone" in step.sentence


def test_a_fuser_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(ExactFuser):
        name = "theirs"

        def fuse(self, *_: object, **__: object) -> tuple[FusionGroup, ...]:
            raise RuntimeError("boom")

    monkeypatch.setattr(layer_fusion, "load_fuser", lambda _: Failing())
    with pytest.raises(
        PluginFaultError, match=r"^fuser theirs raised RuntimeError at test_layer_fusion\.py:\d+: boom$"
    ):
        fused(job(), "theirs")


def test_collectives_are_not_sent_in_parts() -> None:
    step, _, _ = fused(job(tensor_parallel=(2,), pipeline=(1,)), "exact")
    assert {choice.num_parts for chain in step.chains for choice in chain.problem.choices} == {1}
    alone, _, _ = fused(job(micro_batch=(4,)), "exact")
    choices = alone.chains[0].problem.choices
    assert [(each.num_parts, each.holds_weights) for each in choices] == [
        (1, False), (2, False), (2, True), (4, False), (4, True),
    ]  # fmt: skip


def test_places_in_groups_never_cost_where_the_buffer_stays() -> None:
    """With the same buffer left a layer takes no longer where more of its border is on chip, by lower bounds."""
    step, _, _ = fused(job(), "exact")
    for chain in step.chains:
        seconds = chain.problem.seconds[0, 0]
        filled = seconds[INNER] < float("inf")
        assert filled.any()
        assert (seconds[INNER][filled] <= seconds[FIRST][filled] * (1 + 1e-2)).all()
        assert (seconds[INNER][filled] <= seconds[LAST][filled] * (1 + 1e-2)).all()


@pytest.mark.parametrize("software", [None, "ideal"])
@pytest.mark.parametrize("glb_mb", [4, 48])
def test_no_layer_of_any_group_goes_below_its_bound(software: str | None, glb_mb: int) -> None:
    """Every place, choice and reserve that a table of groups has, against the bound from all numbers of parts."""
    objective = job("exact", software=software, micro_batch=(4,), recompute="none")
    accelerator = chip(objective, glb_mb)
    step, found, clock = fused(objective, "exact", glb_mb)
    compiled, estimates = objective.bounded(table_of(accelerator), 1, index=0)
    (option,) = compiled.options
    (unit,) = found.step.graph.cut.units

    def least_s(columns: np.ndarray, place: tuple[int, int]) -> float:
        layers = [list(layer) for layer in option.phases]
        layers[place[0]][place[1]] = replace(layers[place[0]][place[1]], columns=columns)
        own = replace(option, phases=tuple(map(tuple, layers)))
        times = bound_option(own, estimates, accelerator, scenario=objective.scenario)
        solve_option(own, times, estimates, accelerator, scenario=objective.scenario)
        return times.lower_s[place]

    gaps = []
    for phase, chain in enumerate(step.chains):
        for number, seconds in enumerate(chain.problem.seconds):
            place = unit[number], phase
            ways = option.phases[place[0]][place[1]].ways
            bounds = [sum(share * least_s(columns, place) for share, columns in way) for way in ways]
            for choice, (least, taken) in enumerate(zip(bounds, seconds, strict=True)):
                assert least <= taken.min() * (1 + 1e-9), chain.problem.choices[choice]
            gaps.append(seconds.min() / min(bounds))
    assert max(gaps) < 1.01, "and is not far below"
    assert len({*step.chains[0].problem.choices}) == 5


def test_the_plan_is_the_best_with_its_layers_in_groups() -> None:
    """Against each set of degrees by itself: another one than the best with each layer alone."""
    machine = "num_tc=8, num_vc=16, tc_width=128, tc_depth=128, glb_mb=48, hbm_gb=80, hbm_gb_per_s=400"
    seconds = {}
    for fuser, batches in ((None, (2,)), (None, (4,)), ("exact", (2,)), ("exact", (4,)), ("exact", (2, 4))):
        given = {"devices": 256, "global_batch": 1024, "tensor_parallel": (1,), "pipeline": (1,), "zero": (1,)}
        scenario = make_scenario("gpt2-xl", layer_fusion=fuser, micro_batch=batches, interleave=(1,), **given)
        objective = Objective(scenario)
        found = objective.evaluate_accelerator(load_architecture(machine, constants=objective.constants))
        seconds[fuser, batches] = found.iteration_time_s
        assert sum(vars_of(found.breakdown)) == pytest.approx(found.iteration_time_s, rel=1e-9)
    assert seconds[None, (2,)] < seconds[None, (4,)]
    assert seconds["exact", (2,)] > seconds["exact", (4,)]
    assert seconds["exact", (2, 4)] == pytest.approx(seconds["exact", (4,)], rel=1e-9)


def test_pruners_take_fused_layers_where_they_are_bounded() -> None:
    scenario = job("exact").scenario
    check_pruner("critical-path", scenario)
    bound, reached = (each(job("exact")) for each in (bound_rate, reached_rate))
    assert reached <= bound <= 1.3 * reached
    with pytest.raises(InputError, match="more buffer slows nothing down"):
        check_pruner("critical-path", replace(scenario, estimator="someone's"))


def bound_rate(objective: Objective) -> float:
    return bound_points(objective, [POINT])[0].throughput_samples_per_s


def reached_rate(objective: Objective) -> float:
    return objective.evaluate(POINT).throughput_samples_per_s


def test_where_no_layers_can_be_fused_it_is_refused() -> None:
    objective = job("exact")
    with pytest.raises(InputError, match="pipelines of one design"):
        evaluate_heterogeneous(objective, [make_point()])
    with pytest.raises(InputError, match="no fuser is named 'exakt'"):
        job("exakt")
    with pytest.raises(InputError, match="dies with full plans"):
        job("exact", silicon="phaze")
    with pytest.raises(InputError, match="is of full plans"):
        job("exact", published_form="phaze", pipeline=(), interleave=(), micro_batch=())
