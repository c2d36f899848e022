"""Models of families whose blocks differ, through plans, certificates and their check: two codes, one number."""

from dataclasses import replace

import numpy as np
import pytest
from kits.family_models import RECORDED, SMALL, model_of, small_model_of
from kits.planned import WIDE, checker, compiled, draw_times, prover_loads
from planned_certificate import planned_scenario, write_planned_certificate

from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.check.plans.admitted import is_shardable
from phaze_opt.cost.step_time import step_times
from phaze_opt.graph.operator import ShardingOptions
from phaze_opt.graph.sharding import sharding_obstacle
from phaze_opt.plan.plan_search import step_memory

EXACT = 1e-12


@pytest.mark.parametrize(("name", "units"), [("alternating", 4), ("latent experts", 4), ("encoder and decoder", 4)])
def test_prices_and_memory_are_those_of_the_prover(name: str, units: int) -> None:
    rng = np.random.default_rng(units + len(name))
    choices = replace(WIDE, tensor=(1, 2), context=(1,), micro_batch=(2,), state_shards=(0,))
    scenario = planned_scenario("megatron-core", small_model_of(name), plans=choices, global_batch=64)
    assert scenario.models[0].num_units == units
    check = checker(scenario)
    times = draw_times(check, rng)
    for at in sorted(rng.choice(len(check.plans), size=12, replace=False)):
        each = check.staged(check.plans[at])
        stages, rules = prover_loads(scenario, check, each, times, chip=0)
        found = check.price_s(each, times.makespan_s, times.attention_s)[0]
        assert found == pytest.approx(step_times(stages, rules).seconds[0], rel=EXACT)
        expected = [stage.total_bytes for stage in step_memory(compiled(scenario, each)).stages]
        assert check.memory_bytes(each) == pytest.approx(expected, rel=EXACT)


def test_a_certificate_of_an_alternating_model_is_read_and_holds(tmp_path) -> None:
    directory = write_planned_certificate("ideal", tmp_path / "proof", small_model_of("alternating"))
    assert check_certificate(directory).claim.is_feasible


@pytest.mark.parametrize("name", [*RECORDED, *SMALL])
def test_the_checker_admits_the_degrees_that_can_be_sharded(name: str) -> None:
    model = model_of(name) if name in RECORDED else small_model_of(name)
    for tensor in (1, 2, 3, 4, 8, 16):
        for expert, split in ((1, 0), (2, 0), (2, 1), (1, 2), (4, 2)):
            has_groups = expert > 1 or split > 0
            options = ShardingOptions(
                expert=expert if has_groups else None, has_kv_replicas=True, expert_tensor=split or None
            )
            found = is_shardable(model, tensor=tensor, expert=expert, split=split)
            assert found == (sharding_obstacle(model, tensor, options=options) is None)
