"""Every term of the placement time and memory bites: drop one from the kernels and brute force disagrees."""

import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kits.placers import brute_force_batch_time, random_problem

from phaze_opt.placement import kernels
from phaze_opt.placement.problem import PlacementProblem, RecomputePolicy
from phaze_opt.placement.solve import pack_options, solve_placement
from phaze_opt.placement.verify import TimeTerm, recompute_batch_time

DECORATOR = "from phaze_opt.record.compiled import compiled\n"

MUTATIONS = {
    "forward": ("time_s = forward_s + backward_s", "time_s = backward_s"),
    "backward": ("time_s = forward_s + backward_s", "time_s = forward_s"),
    "recompute": ("        time_s += forward_s\n", ""),
    "front_transfer_latency": ("chain.transfer[stage, 0] + chain", "chain"),
    "front_transfer_bytes": ("time_s += chain.transfer[stage, 0] + ", "time_s += chain.transfer[stage, 0] + 0.0 * "),
    "back_transfer_latency": ("chain.transfer[stage - 1, 0] + chain", "chain"),
    "back_transfer_bytes": ("chain.transfer[stage - 1, 0] + ", "chain.transfer[stage - 1, 0] + 0.0 * "),
    "all_reduce_latency": ("sync_s = rules.latency_s + ", "sync_s = "),
    "all_reduce_bytes": ("rules.s_per_byte * gradient + update_s", "update_s"),
    "update": ("rules.s_per_byte * gradient + update_s", "rules.s_per_byte * gradient"),
    "bubble": ("slots = rules.num_micro + num_stages - 1", "slots = rules.num_micro"),
    "state_memory": ("memory = state + in_flight * (prefix[STASH", "memory = in_flight * (prefix[STASH"),
    "stash_memory": ("memory = state + in_flight * (prefix[STASH", "memory = state + 0.0 * (prefix[STASH"),
    "input_memory": ("state + in_flight * (prefix[INPUT", "state + 0.0 * (prefix[INPUT"),
    "working_set_memory": (" + peak_bytes\n", "\n"),
    "in_flight": ("in_flight = min(stage, rules.num_micro)", "in_flight = 1"),
    "in_flight_cap": ("in_flight = min(stage, rules.num_micro)", "in_flight = stage"),
    "tied_state": ("        state -= chain.tied[0]\n", ""),
    "tied_gradient": ("        gradient -= chain.tied[1]\n", ""),
    "tied_update": ("        update_s -= chain.tied[2]\n", ""),
}


def _problems() -> Iterator[PlacementProblem]:
    """Random problems, half of them with few micro-batches and just as much memory as some placement needs."""
    for seed in range(40):
        yield random_problem(seed, num_layers=1 + seed % 4, num_devices=1 + seed % 8)
    for seed in range(40):
        poor = replace(random_problem(seed, num_layers=1 + seed % 4, num_devices=1 + seed % 8), memory_bytes=1e6)
        poor = replace(poor, global_batch=1 + seed % 3, micro_batch=1)
        shortfall = solve_placement(poor).shortfall
        if shortfall.needed_bytes > 0:
            yield replace(poor, memory_bytes=shortfall.needed_bytes)


def _interpreted(old: str = "", new: str = "") -> types.ModuleType:
    """The kernels' source as plain Python, with one replacement."""
    source = Path(kernels.__file__).read_text(encoding="utf-8")
    assert source.count(DECORATOR) == 1
    source = source.replace(DECORATOR, "def compiled(function):\n    return function\n")
    if old:
        assert source.count(old) == 1, f"{old!r} must stand in the kernels exactly once"
        source = source.replace(old, new)
    module = types.ModuleType("interpreted_kernels")
    sys.modules[module.__name__] = module
    exec(compile(source, "kernels.py", "exec"), module.__dict__)
    return module


@pytest.fixture(scope="module")
def expected() -> list[float]:
    return [brute_force_batch_time(problem) or np.inf for problem in _problems()]


def _disagreements(module: types.ModuleType, expected: list[float]) -> int:
    found = 0
    for problem, best_s in zip(_problems(), expected, strict=True):
        result = float(module.search(pack_options(problem))[0][0])
        found += not (result == best_s or abs(result / best_s - 1) < 1e-9)
    return found


def test_interpreted_kernels_equal_brute_force(expected: list[float]) -> None:
    assert 40 < sum(np.isfinite(expected)) < len(expected)
    assert _disagreements(_interpreted(), expected) == 0


@pytest.mark.parametrize("term", MUTATIONS)
def test_dropping_a_term_is_noticed(term: str, expected: list[float]) -> None:
    assert _disagreements(_interpreted(*MUTATIONS[term]), expected) > 0


@pytest.mark.parametrize("term", TimeTerm)
def test_verifier_counts_every_term(term: TimeTerm) -> None:
    """Leaving a term out of the independent time changes it, on some of the same problems."""
    policy = RecomputePolicy.ALWAYS if term is TimeTerm.RECOMPUTE else RecomputePolicy.AUTO
    changed = 0
    for seed in range(20):
        problem = random_problem(seed, num_layers=4, num_devices=12, recompute=policy)
        result = solve_placement(problem)
        if result.stages:
            without_s = recompute_batch_time(problem, result, without=frozenset({term}))
            changed += without_s < result.batch_time_s * (1 - 1e-12)
    assert changed > 0
