"""Certificates of layers in groups: attained as enumerated, recomputed by the check, and forged groups refused."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forger import UPPER, Forger
from planned_certificate import PLANS, planned_scenario
from small_problems import brute_force, small_model

from phaze_opt.certify.certificate import SOLUTIONS_FILE, SolvedFusion, SolvedModel
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.check.files import keep_check, read_certificate
from phaze_opt.certify.check.plan_bounds import planned_models
from phaze_opt.certify.check.plan_solutions import PlanSolutions
from phaze_opt.certify.check.problem_data import PHASES, check_problem
from phaze_opt.certify.exact_solution import solved_fusion
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.certify.robust.prover import SharedGraphs
from phaze_opt.certify.robust.worlds import build_worlds, find_assumptions, problem_in
from phaze_opt.errors import CertificateError, InputError
from phaze_opt.hardware.accelerator import table_of
from phaze_opt.hardware.silicon.silicon import silicon_of
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.headline_range import fusion_words
from phaze_opt.objective.scheduled_plan import FusedPlan
from phaze_opt.report.chip import arch_option
from phaze_opt.schedule.layer_fusion import FusionGroup, no_groups
from phaze_opt.space.axes import Axes
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.study.certified_truth import certified_truth
from phaze_opt.units import MEBI
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import Recompute
from phaze_opt.workload.sparsity import Pattern, SparseWeights

WIDE = small_model("wide", hidden_size=512, num_heads=8, num_kv_heads=8, ffn_size=2048, embedding_size=512)
DEEP = replace(WIDE, name="deep", num_layers=8)
ONE_STAGE = replace(PLANS, tensor=(1,), pipeline=(1,), interleave=(1,), micro_batch=(4,), zero=(1,))


def fused_problem(*models: ModelSpec, glb_mb: tuple[int, ...] = (8,), **changes: object) -> CertifyProblem:
    """Dies whose arrays wait for memory."""
    defaults: dict[str, object] = {"estimator": "calibrated", "plans": ONE_STAGE, "global_batch": 64}
    scenario = planned_scenario("ideal", *(models or (WIDE,)), **(defaults | changes))
    silicon = silicon_of(7, scenario.cluster.network)
    axes = Axes(
        num_tc=(8,), num_vc=(16,), tc_width=(128,), tc_depth=(128,), vc_width=(128,),
        glb_bytes=tuple(size * MEBI for size in glb_mb), glb_bytes_per_cycle=(4096,), hbm_bytes=(), hbm_stacks=(1,),
        micro_batch=(1,),
    )  # fmt: skip
    space = SearchSpace("fused", axes, area_budget_um2=858e6, min_area_fraction=0.0, silicon=silicon)
    fused = replace(scenario, silicon=silicon, layer_fusion="exact")
    return CertifyProblem(fused, space, scenario.constants_of(), goal=Goal.THROUGHPUT_PER_TDP)


def test_what_is_attained_is_with_groups_and_studies_take_it_for_the_truth(tmp_path: Path) -> None:
    plans = replace(PLANS, micro_batch=(2, 4), zero=(1,))
    problem = fused_problem(plans=plans, glb_mb=(2, 48), global_batch=16)
    alone = replace(problem, scenario=replace(problem.scenario, layer_fusion=""))
    result = certify(problem, CertifyOptions(tolerance=5e-3, num_best=4, directory=tmp_path))
    report = check_certificate(result.directory)
    assert report.claim.is_proved
    assert "solutions state those behind what is attained" in " ".join(report.problem)
    values, of_layers_alone = brute_force(problem)[0], brute_force(alone)[0]
    gains = np.array(values) / np.array(of_layers_alone) - 1.0
    assert gains.max() > 5e-3
    best, objective = result.best[0], Objective(problem.scenario, constants=problem.constants)
    said = f"in groups the layers of the best design train {100 * gains[best.index]:.2g} % more"
    assert said in fusion_words(best.evaluation, objective)
    assert fusion_words(best.evaluation, Objective(alone.scenario, constants=problem.constants)) == ""
    words = arch_option(best.point, replace(problem.scenario, sparsity=SparseWeights(Pattern(2, 4))))
    assert words == f"--arch {best.point.inline()} --sparsity 2:4 --layer-fusion exact"
    assert arch_option(best.point, alone.scenario) == f"--arch {best.point.inline()}"
    assert gains.min() >= 0.0
    assert report.claim.value == pytest.approx(max(values), rel=1e-9)
    assert max(values) <= report.claim.value_upper
    keep_check(result.directory, report.digest)
    known = certified_truth(problem.digest, certificates=tmp_path)
    assert known is not None
    assert known.truth is not None
    assert known.truth.value == report.claim.value
    # A bound that layers alone would have is refused: groups may be faster.
    forger = Forger(result.directory, tmp_path / "forged")
    forger.cells(int(np.argmax(values)), **{UPPER: lambda upper: upper * 0.99})
    forger.seal()
    with pytest.raises(CertificateError, match=UPPER):
        check_certificate(forger.directory)


def test_fused_layers_are_bounded_by_estimators_that_more_buffer_does_not_slow() -> None:
    with pytest.raises(InputError, match="more buffer slows nothing down"):
        fused_problem(estimator="someone's")


def test_worlds_of_fused_layers_share_their_graphs() -> None:
    problem = fused_problem()
    worlds = build_worlds(problem, find_assumptions(problem), num_samples=0, seed=0)
    (larger,) = (problem_in(problem, world) for world in worlds if world.name == "die areas = high")
    graphs = SharedGraphs(problem)
    nominal, other = graphs.objective(problem), graphs.objective(larger)
    assert nominal.constants != other.constants
    assert nominal.planned(0) is other.planned(0)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of one die, whose stage is one group forward and one backward."""
    directory = tmp_path_factory.mktemp("fused")
    return certify(fused_problem(), CertifyOptions(tolerance=0.05, num_best=1, directory=directory)).directory


@pytest.fixture
def forger(original: Path, tmp_path: Path) -> Forger:
    return Forger(original, tmp_path / "forged")


class Priced:
    """Steps by the check's own arithmetic of whatever groups one die's plan is given."""

    def __init__(self, directory: Path) -> None:
        files = read_certificate(directory)
        (self.solution,) = files.solutions
        (self.solved,) = self.solution.models
        problem = check_problem(files.certificate)
        objective = Objective(files.certificate.scenario)
        chip = objective.accelerator(files.certificate.space.point(self.solution.index))
        found = objective.evaluate_planned(chip).fused
        assert found is not None
        self.found: FusedPlan = found
        self._check, self._chips = PlanSolutions(planned_models(problem)), table_of(chip)

    def step_s(self, fusion: SolvedFusion | None) -> float:
        solved: SolvedModel = replace(self.solved, fusion=fusion)
        seconds = self._check.step_s(0, solved, self._chips)
        assert isinstance(seconds, float), seconds
        return seconds

    def fusion_of(self, number: int, groups: tuple[FusionGroup, ...]) -> SolvedFusion | None:
        """The only run of one phase in such groups, the other each layer alone."""
        runs = [replace(run, chain=replace(run.chain, groups=no_groups(run.chain.problem))) for run in self.runs]
        runs[number] = replace(runs[number], chain=replace(runs[number].chain, groups=groups))
        return solved_fusion(replace(self.found, fused=replace(self.found.fused, runs=tuple(runs))))

    @property
    def runs(self) -> Any:
        return self.found.fused.runs


def partitions(count: int) -> Iterator[list[tuple[int, int]]]:
    for size in range(count):
        for inner in combinations(range(1, count), size):
            yield [*pairwise((0, *inner, count))]


def test_the_best_of_all_groups_is_what_is_attained(original: Path) -> None:
    """Every group by every choice, priced by the check; then every partition into these."""
    priced = Priced(original)
    alone_s, best_s, num_tried = priced.step_s(None), priced.step_s(None), 0
    for number, run in enumerate(priced.runs):
        problem = run.chain.problem
        assert {(each.num_parts, each.holds_weights) for each in problem.choices} == {
            (1, False), (2, False), (2, True), (4, False), (4, True),
        }  # fmt: skip
        # The step is linear in what layers take: one stage, and gradients that nothing hides.
        saved_s: dict[tuple[int, int], float] = {}
        for first, stop, choice in np.argwhere(problem.slices < problem.num_slices).tolist():
            others = [group for group in no_groups(problem) if not first <= group.first < stop]
            groups = sorted([*others, FusionGroup(first, stop, choice)], key=lambda group: group.first)
            own_s = alone_s - priced.step_s(priced.fusion_of(number, tuple(groups)))
            saved_s[first, stop] = max(own_s, saved_s.get((first, stop), -np.inf))
            num_tried += 1
        sums = [sum(saved_s.get(each, -np.inf) for each in parts) for parts in partitions(problem.num_layers)]
        best_s -= max(sums)
    assert num_tried > 60
    assert best_s < alone_s * (1 - 5e-3)
    assert priced.step_s(priced.solved.fusion) == pytest.approx(best_s, rel=1e-9)
    assert priced.found.seconds == pytest.approx(best_s, rel=1e-9)


SHAPES: dict[str, tuple[ModelSpec, dict[str, tuple[object, ...]]]] = {
    "stages": (DEEP, {"pipeline": (2,)}),
    "chunks": (DEEP, {"pipeline": (2,), "interleave": (2,)}),
    "recomputing": (WIDE, {"recompute": (Recompute.FULL,)}),
    "collectives": (WIDE, {"tensor": (2,)}),
}


def change(forger: Forger, how: Callable[[Any], object]) -> None:
    """Change what the only solution says of groups."""
    forger.json(SOLUTIONS_FILE, lambda data: how(data["solutions"][0]["models"][0]["fusion"]))


def of_group(run: int = 0, **values: object) -> Callable[[Any], object]:
    return lambda fusion: fusion["runs"][run]["groups"][0].update(values)


def of_parts(**values: object) -> Callable[[Any], object]:
    return lambda fusion: [part.update(values) for part in fusion["parts"]]


def start_at_once(fusion: Any) -> None:
    schedule = max((part["schedule"] for part in fusion["parts"]), key=lambda each: len(each["start_s"]))
    schedule["start_s"] = [0.0] * len(schedule["start_s"])


def smaller_reserve(fusion: Any) -> None:
    """As if one border tensor less lay in the buffer."""
    for each in (fusion["runs"][0]["groups"][0], *fusion["parts"]):
        each["reserved_bytes"] -= MEBI


def one_group_less(fusion: Any) -> None:
    fusion["runs"][0]["groups"][0]["num_layers"] -= 1


RUN = r"chunk 0, forward: "
GROUP = RUN + "group from layer 0 on: "
PART = r"part of layer \d+, \w+, in a group: "
FORGERIES: dict[str, tuple[Callable[[Any], object], str]] = {
    "too small a reserve": (smaller_reserve, GROUP + r"it needs \d+ bytes and reserves \d+ of a buffer of 8388608"),
    "a reserve of everything": (of_group(reserved_bytes=8 * MEBI), GROUP + "it needs"),
    "a part beyond the buffer": (of_parts(reserved_bytes=9 * MEBI), PART + "9437184 bytes are reserved of a buffer"),
    "a part that reserves less than nothing": (of_parts(reserved_bytes=-1), PART + "-1 bytes are reserved"),
    "nothing written for backward": (of_group(is_written=False), GROUP + "it does not write what backward needs"),
    "three parts": (of_group(num_parts=3), GROUP + "a micro-batch of 4 has no 3 parts"),
    "parts that are not said": (of_group(num_parts=2), GROUP + "how layer 1 runs in it is not said"),
    "parts of no micro-batch": (of_parts(num_parts=8), PART + "a micro-batch of 4 has no 8 parts"),
    "weights for no later part": (of_group(holds_weights=True), GROUP + "it holds weights for later parts, and has"),
    "layers left out": (one_group_less, RUN + "its groups do not hold each of 4 layers once and in order"),
    "a chunk of no stage": (lambda f: f["runs"][0].update(chunk=1), "chunk 1, forward: is no pass of a chunk"),
    "a pass that has no groups": (lambda f: f["runs"][0].update(phase="update"), "chunk 0, update: is no pass of a"),
    "a run twice": (lambda f: f["runs"].append(f["runs"][0]), RUN + "has groups twice"),
    "a part twice": (lambda f: f["parts"].append(f["parts"][0]), PART + "is there twice"),
    "a part of the embedding": (lambda f: f["parts"][0]["schedule"].update(layer=0), PART + "is no pass of a unit's"),
    "a part that finds its output": (of_parts(spares_output=True), "(" + PART + "is there twice|.*is not said)"),
    "a part that finds its weights": (of_parts(has_weights=True), GROUP + "how layer 1 runs in it is not said"),
    "a part started at once": (start_at_once, PART + "operator .* starts before operator .*, which it needs, ends"),
}


OF_SHAPES: dict[str, tuple[Callable[[Any], object], str]] = {
    "recomputing": (
        lambda fusion: fusion["runs"][0].update(phase="backward"),
        "chunk 0, backward: backward of a stage that recomputes",
    ),
    "collectives": (of_group(num_parts=2), GROUP + "its layers send, launch or add up gradients once, and it runs in"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_groups_of_every_stage_are_stated_and_recomputed(shape: str, tmp_path: Path) -> None:
    model, degrees = SHAPES[shape]
    problem = fused_problem(model, plans=replace(ONE_STAGE, **degrees))
    result = certify(problem, CertifyOptions(tolerance=0.05, num_best=1, directory=tmp_path))
    check_certificate(result.directory)
    (solved,) = read_certificate(result.directory).solutions[0].models
    assert solved.plan is not None
    assert solved.fusion is not None
    plan, phases = solved.plan.plan, 1 if shape == "recomputing" else len(PHASES[:2])
    assert len(solved.fusion.runs) == plan.pipeline * plan.interleave * phases
    assert max(group.num_layers for run in solved.fusion.runs for group in run.groups) > 1
    if shape in OF_SHAPES:
        forger = Forger(result.directory, tmp_path / "forged")
        change(forger, OF_SHAPES[shape][0])
        forger.assert_refused(SOLUTIONS_FILE, OF_SHAPES[shape][1], row=0)


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_groups_are_refused(name: str, forger: Forger) -> None:
    how, rule = FORGERIES[name]
    change(forger, how)
    forger.assert_refused(SOLUTIONS_FILE, rule, row=0)


def test_groups_of_a_scenario_without_fusion_are_refused(forger: Forger) -> None:
    forger.certificate(lambda data: data["scenario"].update(layer_fusion=""))
    forger.assert_refused(SOLUTIONS_FILE, "has layers in groups, which its scenario has none of", row=0)
