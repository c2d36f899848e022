"""Spaces, scenarios and problems small enough to evaluate every point of."""

import json
from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st

from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import Goal, goal_values
from phaze_opt.objective.scenario import CommonMean, Scenario
from phaze_opt.placement.problem import RecomputePolicy
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.space.axes import Axes
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import gib_to_bytes, mib_to_bytes
from phaze_opt.workload.config import load_model
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.training import AttentionForm

NO_BUDGET_UM2 = 1e12


def small_space(**axes: tuple[int, ...]) -> SearchSpace:
    """A space without area bounds; 16 points unless told otherwise."""
    values: dict[str, tuple[int, ...]] = {
        "vc_width": (),
        "num_tc": (8, 16),
        "num_vc": (16, 64),
        "tc_width": (32, 64),
        "tc_depth": (64,),
        "glb_bytes": (mib_to_bytes(4),),
        "hbm_bytes": (gib_to_bytes(32),),
        "micro_batch": (1, 2),
    }
    return SearchSpace("small", Axes(**(values | axes)), NO_BUDGET_UM2, 0.0)


def small_model(name: str = "tiny", **changes: object) -> ModelSpec:
    """The toy of the zoo, or a variation of it."""
    return replace(load_model("tiny"), name=name, **changes)


def small_scenario(*models: ModelSpec, devices: int = 4, network: str = "two-level", **changes: object) -> Scenario:
    """A scenario whose schedules are solved as far as it takes."""
    cluster = Cluster(devices, load_network(network, num_devices=devices, constants=load_constants()))
    defaults: dict[str, object] = {
        "global_batch": 32,
        "sequence_length": 256,
        "tensor_parallel": (1, 2),
        "schedule_gap": 0.0,
    }
    return Scenario(models=models or (small_model(),), cluster=cluster, **(defaults | changes))


def small_problem(
    scenario: Scenario | None = None,
    space: SearchSpace | None = None,
    *,
    constants: Constants | None = None,
    goal: Goal = Goal.THROUGHPUT,
) -> CertifyProblem:
    """A problem of these."""
    return CertifyProblem(scenario or small_scenario(), space or small_space(), constants or load_constants(), goal)


MODELS = (
    small_model("deep", num_layers=6),
    small_model("wide", hidden_size=1024, num_heads=16, num_kv_heads=16, ffn_size=4096, embedding_size=1024),
    small_model("gated", is_mlp_gated=True),
    small_model("grouped", num_kv_heads=2),
    small_model("split", is_qkv_combined=False),
)


@st.composite
def problems(draw: st.DrawFn, *, fewest_cores: int = 8) -> CertifyProblem:
    """Small spaces x models x clusters, both rules of exclusivity, all means, both goals, with and without budgets.

    Chips of few cores have schedules that take seconds to solve.
    """
    models = draw(st.lists(st.sampled_from(MODELS), min_size=1, max_size=2, unique_by=lambda model: model.name))
    counts = [count for count in (2, 4, 8, 12, 16, 32) if count >= fewest_cores]
    cores = st.sets(st.sampled_from(counts), min_size=1, max_size=2)
    sizes = st.sets(st.sampled_from((8, 16, 32, 48, 64, 128)), min_size=1, max_size=2)
    space = small_space(
        num_tc=tuple(sorted(draw(cores))),
        num_vc=tuple(sorted(draw(cores))),
        tc_width=tuple(sorted(draw(sizes))),
        tc_depth=tuple(sorted(draw(sizes))),
        micro_batch=tuple(sorted(draw(st.sets(st.sampled_from((1, 2, 3)), min_size=1, max_size=2)))),
    )
    scenario = small_scenario(
        *models,
        devices=draw(st.sampled_from((1, 4, 6, 8))),
        network=draw(st.sampled_from(("two-level", "phaze"))),
        tensor_parallel=draw(st.sampled_from(((1,), (1, 2)))),
        exclusivity=draw(st.sampled_from(Exclusivity)),
        attention=draw(st.sampled_from(AttentionForm)),
        recompute=draw(st.sampled_from(RecomputePolicy)),
        common=draw(st.sampled_from(CommonMean)),
        max_tdp_w=draw(st.sampled_from((None, None, 160.0, 220.0))),
        max_area_mm2=draw(st.sampled_from((None, None, 20.0, 60.0))),
    )
    return small_problem(scenario, space, goal=draw(st.sampled_from((Goal.THROUGHPUT, Goal.THROUGHPUT_PER_TDP))))


_LOOKED_AT: dict[tuple[str, Goal], tuple[list[float], list[float]]] = {}


def brute_force(problem: CertifyProblem, objective: Objective | None = None) -> tuple[list[float], list[float]]:
    """Value of every point by `Objective.evaluate`, and what its schedules' gaps leave possible; 0 if infeasible.

    Of one problem they are worked out once, unless an objective is given.
    """
    if objective is None:
        key = problem.digest, problem.goal
        if key not in _LOOKED_AT:
            _LOOKED_AT[key] = brute_force(problem, Objective(problem.scenario, constants=problem.constants))
        return _LOOKED_AT[key]
    values, values_upper = [], []
    for point in problem.space.points():
        evaluation = objective.evaluate(point)
        value = goal_values(problem.goal, evaluation)[0] if evaluation.is_feasible else 0.0
        share = evaluation.throughput_bound_samples_per_s / evaluation.throughput_samples_per_s if value else 0.0
        values.append(value)
        values_upper.append(value * share)
    return values, values_upper


def contents(directory: Path) -> dict[str, bytes]:
    """All files of a certificate, provenance and the digest over it left out."""
    found = {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
    certificate = json.loads(found["certificate.json"])
    del certificate["provenance"], certificate["digest"]
    return found | {"certificate.json": json.dumps(certificate).encode()}


def flip_a_bit(path: Path) -> None:
    """In the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(bytes(content))


def tear(path: Path) -> None:
    """Cut the end off a file."""
    path.write_bytes(path.read_bytes()[:-7])
