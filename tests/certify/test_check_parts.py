"""Other parts of the checker against the rooms that it must not share code with."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from forger_chains import random_chain
from forger_originals import COMMON, original
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.schedulers import random_problem

import phaze_opt.certify.check as package
from phaze_opt.certify.certificate import NodeKind, SolvedSchedule, TreeEntry, TreeNode, VectorEntry
from phaze_opt.certify.check import problem_data
from phaze_opt.certify.check.bounds import RowBounds
from phaze_opt.certify.check.claim import check_claim
from phaze_opt.certify.check.files import read_certificate
from phaze_opt.certify.check.points_table import enumerate_architectures
from phaze_opt.certify.check.pool import PricedBlock, PricedPool
from phaze_opt.certify.check.prices import block_shape, price_tree
from phaze_opt.certify.check.problem_data import ModelData, PhaseGraph, throughput
from phaze_opt.certify.check.solutions import PhaseLatencies, replay
from phaze_opt.errors import CertificateError, VerificationError
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.graph.operator import CoreType, Phase
from phaze_opt.graph.sharding import model_flops
from phaze_opt.hardware.chip_template import CHIP_AXES, DesignPoint, PointColumns
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.objective.several_models import combine_rates
from phaze_opt.schedule.problem import Exclusivity, ScheduleResult, ScheduleStatus
from phaze_opt.schedule.solve import solve_schedule
from phaze_opt.schedule.verify import verify_schedule
from phaze_opt.space.axes import Axes
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI, MEBI

ALLOWED = (
    "units",
    "errors",
    "record",
    "plugins",
    "workload",
    "hardware",
    "graph",
    "estimate",
    "space.known_spaces",
    "space.search_space",
    "objective.scenario",
    "objective.goals",
    "schedule.problem",
    "placement.problem",
    "certify.certificate",
    "certify.check",
)
QUESTIONS = {"worlds.py": ("certify.problem", "certify.robust.worlds")}
"""What states a question, by the file that lays it out again: which worlds a front is over."""
POINT = DesignPoint(1, 1, 8, 8, 8, 2 * MEBI, GIBI, 1)
SEEDS = st.integers(0, 2**32 - 1)


def test_the_checker_imports_nothing_of_the_prover():
    """A list of what it may use, where import-linter has one of what it may not."""
    for path in Path(package.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            for name in names:
                if name.startswith("phaze_opt"):
                    inner = name.removeprefix("phaze_opt.")
                    allowed = (*ALLOWED, *QUESTIONS.get(path.name, ()))
                    assert any(inner == room or inner.startswith(f"{room}.") for room in allowed), (path.name, name)


def columns_of(space):
    found = enumerate_architectures(space, load_constants())
    return chips(found)


def chips(columns):
    return np.stack([getattr(columns, axis.name) for axis in CHIP_AXES if axis.name != "hbm_bytes"])


def test_the_phaze_space_is_enumerated_whole():
    space = phaze_space(hbm_bytes=(32 * GIBI,), micro_batches=(8,))
    kept = space.architecture_columns
    expected = chips(kept)
    found = columns_of(space)
    assert found.shape == (len(CHIP_AXES) - 1, 29_360)
    assert (found == expected).all()


@given(seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_any_space_is_enumerated_in_index_order(seed):
    rng = np.random.default_rng(seed)

    def axis(values, most):
        chosen = rng.choice(values, size=int(rng.integers(1, most)), replace=False)
        return tuple(sorted(int(value) for value in chosen))

    axes = Axes(
        vc_width=axis(range(2, 257), 3) if seed % 2 else (),
        num_tc=axis(range(1, 40), 6),
        num_vc=axis(range(1, 40), 6),
        tc_width=axis(range(2, 257), 4),
        tc_depth=axis(range(2, 257), 4),
        glb_bytes=tuple(MEBI * size for size in axis(range(2, 129), 4)),
        hbm_bytes=(GIBI,),
        micro_batch=(1,),
    )
    space = SearchSpace("any", axes, float(rng.uniform(5e6, 3e8)), float(rng.uniform(0, 1)))
    if rng.random() < 0.5:
        space = replace(space, max_area_um2=float(rng.uniform(5e6, 3e8)))
    kept = space.architecture_columns if space.num_architectures else None
    found = columns_of(space)
    if kept is None:
        assert found.shape[1] == 0
    else:
        assert (found == chips(kept)).all()


def replayed(problem, start_s, is_spread):
    graph = PhaseGraph(problem.core_types, problem.edges, first=0, collective_s=0.0)
    latencies = PhaseLatencies(np.array(problem.one_core_s), np.array(problem.spread_s), problem.floor_s, problem.cores)
    schedule = SolvedSchedule(0, Phase.FORWARD, tuple(start_s), tuple(is_spread))
    return replay(graph, schedule, latencies, problem.exclusivity)


@given(seed=SEEDS, exclusivity=st.sampled_from(list(Exclusivity)))
@settings(max_examples=100, deadline=None)
def test_schedules_of_the_solver_replay(seed, exclusivity):
    problem = random_problem(seed, num_operators=6, exclusivity=exclusivity)
    result = solve_schedule(problem)
    assert replayed(problem, result.start_s, result.is_spread) == pytest.approx(result.makespan_s, rel=1e-12)


@given(seed=SEEDS, exclusivity=st.sampled_from(list(Exclusivity)))
@settings(max_examples=200, deadline=None)
def test_changed_schedules_are_judged_as_the_other_replay_judges_them(seed, exclusivity):
    rng = np.random.default_rng(seed)
    problem = random_problem(seed, num_operators=5, exclusivity=exclusivity)
    result = solve_schedule(problem)
    start, modes = list(result.start_s), list(result.is_spread)
    changed = int(rng.integers(len(start)))
    if rng.random() < 0.5:
        start[changed] = float(rng.uniform(0.0, result.makespan_s))
    else:
        modes[changed] = not modes[changed]
    on_core = [kind is not CoreType.NONE for kind in problem.core_types]
    lengths = np.where(modes, problem.spread_s, problem.one_core_s) * on_core
    makespan = max(float(np.max(np.array(start) + lengths)), problem.floor_s)
    mine = replayed(problem, start, modes)
    try:
        verify_schedule(problem, ScheduleResult(makespan, 0.0, ScheduleStatus.FEASIBLE, tuple(start), tuple(modes)))
    except VerificationError:
        assert isinstance(mine, str)
    else:
        assert mine == pytest.approx(makespan, rel=1e-12)


@pytest.mark.parametrize("common", list(CommonMean))
def test_means_over_models_are_those_of_evaluations(common):
    scenario = replace(original(COMMON).scenario, common=common)
    batch_s = np.array([[0.5, 2.0, 1.0], [0.25, 4.0, np.inf]])
    flops = [model_flops(model, scenario.sequence_length_of(model)) for model in scenario.models]
    found = throughput(scenario, batch_s)
    for row in range(2):
        rates = [scenario.global_batch / seconds for seconds in batch_s[:, row]]
        assert found[row] == pytest.approx(combine_rates(rates, [1.0 / f for f in flops], common=common), rel=1e-12)
    assert found[2] == 0.0


def test_a_bound_below_what_is_attained_is_refused(certificates):
    """Bounds and solutions are checked apart; if both stood, one of the two checks would be wrong."""
    files = read_certificate(certificates["typed"])
    row = files.certificate.claim.incumbent
    upper = files.points.throughput_upper_samples_per_s.copy()
    upper[row] *= 1 - 1e-6
    points = replace(files.points, throughput_upper_samples_per_s=upper)
    with pytest.raises(CertificateError, match=rf"row {row}: throughput_upper.* is below throughput_samples_per_s"):
        check_claim(files.certificate, points)


@pytest.mark.parametrize("length_s", [1.0, 0.0])
def test_cyclic_orders_prove_nothing_of_operators_without_length(length_s):
    """Two operators of no length can each precede the other, so that such a case has schedules after all."""
    leaf, none = TreeNode(NodeKind.LEAF, vector=VectorEntry((1.0, 0.0), ())), TreeNode(NodeKind.LEAF)
    order = TreeNode(NodeKind.ORDER, (0, 1))
    nodes = (TreeNode(NodeKind.MODE, (0,)), order, order, leaf, none, order, none, leaf, leaf)
    kinds = (CoreType.TC, CoreType.TC)
    tree = price_tree(TreeEntry(nodes), block_shape(kinds, np.zeros((2, 2), dtype=bool), (), Exclusivity.CHIP))
    pool = PricedPool(((PricedBlock((0, 1), (tree,)),),), {(kinds, frozenset()): 0}, 0, 1, 0)
    option = replace(random_chain(0, is_usual=True).options[0], phases=((PhaseGraph(kinds, (), 0, 0.0),),))
    chips = chips_of(PointColumns.of([POINT]), load_constants())
    seconds = np.full((1, 2), length_s)
    estimates = Estimates(seconds, seconds, seconds, np.zeros((1, 2)))
    bounds = RowBounds(pool, estimates, chips, np.zeros((1, 1), dtype=int), np.array([42]))
    if length_s > 0.0:
        assert bounds.layer_times(ModelData((), (option,)))[0] == pytest.approx(2.0)
        return
    with pytest.raises(CertificateError, match="row 42: slot 0 is bounded by a tree that orders operators"):
        bounds.layer_times(ModelData((), (option,)))


def test_what_is_no_estimator_is_refused(certificates, monkeypatch):
    certificate = read_certificate(certificates["typed"]).certificate
    monkeypatch.setattr("phaze_opt.estimate.protocol.load_plugin", lambda group, name: object())
    with pytest.raises(CertificateError, match="'analytic' lacks one of name, estimate"):
        problem_data.check_problem(certificate)


def test_orders_prove_nothing_of_operators_without_length():
    """One that takes no time may happen while a spread one runs: neither ends before the other begins."""
    leaf = TreeNode(NodeKind.LEAF, vector=VectorEntry((1.0, 0.0), ()))
    kinds = (CoreType.TC, CoreType.TC)
    shape = block_shape(kinds, np.zeros((2, 2), dtype=bool), (), Exclusivity.CHIP)
    ordered = TreeEntry((TreeNode(NodeKind.MODE, (0,)), TreeNode(NodeKind.ORDER, (0, 1)), leaf, leaf, leaf))
    assert price_tree(ordered, shape).needs_time
    crowd = TreeEntry((TreeNode(NodeKind.CORES, (0, 1), CoreType.TC, 1), leaf, leaf))
    assert price_tree(crowd, shape).needs_time
    assert not price_tree(TreeEntry((TreeNode(NodeKind.MODE, (0,)), leaf, leaf)), shape).needs_time
