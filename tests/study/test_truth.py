"""Truths: the maximum over all evaluations, or a certificate of the same problem; kept by problem, whole or not."""

import hashlib
import json
import os
import shutil
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from claimed_certificate import claim_of, nothing_of, write_certificate
from pyarrow import parquet
from toy_study import CONFIG, ENGINE

from phaze_opt.certify.certificate import content_digest
from phaze_opt.certify.check.files import CHECK_FILE, forget_check, keep_check
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import Goal, goal_values
from phaze_opt.objective.scenario import Scenario
from phaze_opt.study.certified_truth import better_truth, certified_truth, contradiction
from phaze_opt.study.config import Budget, Condition, Judgement, Setting, StudyWorkload, TruthForm
from phaze_opt.study.judging.scoring import front_regret, yardstick_of
from phaze_opt.study.load import load_study
from phaze_opt.study.result import Truth, TruthKind, TruthRecord
from phaze_opt.study.run import run_study
from phaze_opt.study.summary import summarise
from phaze_opt.study.truth import ENUMERATED, find_truth, keep_truth, known_truth, truth_file
from phaze_opt.testing.problems import ToyBounder, ToyObjective, ToyScenario, tiny_space
from phaze_opt.workload.config import load_model

SPACE = tiny_space()


def make_condition(goal=Goal.THROUGHPUT, *, batch=64):
    cluster = Cluster(16, load_network("two-level", num_devices=16, constants=load_constants()))
    scenario = Scenario((load_model("tiny"),), cluster, batch, tensor_parallel=(1, 2))
    return Condition(Setting(goal=goal), StudyWorkload("tiny", ("tiny",)), scenario, SPACE, load_constants())


@dataclass
class Counting:
    """The toy objective, counting; interrupted at an evaluation if asked."""

    scenario: ToyScenario = field(default_factory=ToyScenario)
    stop_at: int = -1
    num_evaluated: int = 0

    def evaluate(self, point):
        if self.num_evaluated == self.stop_at:
            raise KeyboardInterrupt
        self.num_evaluated += 1
        return ToyObjective(self.scenario).evaluate(point)


def best_of(goal, scenario):
    return max(
        (values for point in SPACE.points() if (values := goal_values(goal, ToyObjective(scenario).evaluate(point)))),
        default=None,
    )


@pytest.mark.parametrize("goal", [Goal.THROUGHPUT, Goal.THROUGHPUT_PER_TDP])
@pytest.mark.parametrize("looseness", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("scenario", [ToyScenario(), ToyScenario(max_macs=1 << 15, min_memory_bytes=64 << 30)])
def test_it_is_the_maximum_over_the_space(tmp_path, goal, looseness, scenario):
    condition, counting = make_condition(goal), Counting(scenario)
    truth = find_truth(
        condition, cache_dir=tmp_path, objective=counting, bounder=ToyBounder(scenario, looseness=looseness)
    )
    assert truth.kind is TruthKind.ENUMERATED
    assert (truth.value,) == best_of(goal, scenario)
    assert goal_values(goal, ToyObjective(scenario).evaluate(truth.point)) == (truth.value,)
    assert counting.num_evaluated < SPACE.size / (2 if looseness < 0.5 else 1)


def test_without_bounds_everything_is_evaluated(tmp_path):
    counting = Counting()
    truth = find_truth(make_condition(), cache_dir=tmp_path, objective=counting)
    assert counting.num_evaluated == SPACE.size
    assert (truth.value,) == best_of(Goal.THROUGHPUT, ToyScenario())


def test_it_is_computed_once_for_a_problem(tmp_path):
    first = Counting()
    truth = find_truth(make_condition(), cache_dir=tmp_path, objective=first, bounder=ToyBounder(ToyScenario()))
    again = Counting(stop_at=0)
    assert find_truth(make_condition(), cache_dir=tmp_path, objective=again) == truth
    record = known_truth(make_condition().problem_digest, cache_dir=tmp_path)
    assert (record.truth, record.num_points, record.num_evaluated) == (truth, SPACE.size, first.num_evaluated)
    with pytest.raises(KeyboardInterrupt):
        find_truth(make_condition(batch=128), cache_dir=tmp_path, objective=Counting(stop_at=0))


def test_an_interruption_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        find_truth(make_condition(), cache_dir=tmp_path, objective=Counting(stop_at=3))
    assert not list(tmp_path.iterdir())
    assert find_truth(make_condition(), cache_dir=tmp_path, objective=Counting(), bounder=ToyBounder(ToyScenario()))
    assert [path.name for path in tmp_path.iterdir()] == [f"{make_condition().problem_digest}.{ENUMERATED}.json"]


def test_nothing_feasible_is_a_finding(tmp_path):
    scenario = ToyScenario(max_macs=1)
    counting = Counting(scenario)
    assert find_truth(make_condition(), cache_dir=tmp_path, objective=counting, bounder=ToyBounder(scenario)) is None
    assert counting.num_evaluated == 0
    assert find_truth(make_condition(), cache_dir=tmp_path, objective=Counting(stop_at=0)) is None


@pytest.mark.parametrize("change", [("{", "{}"), ('"value": ', '"value": 1'), ('"num_tc": ', '"num_tc": 1')])
def test_a_changed_file_is_named_and_counts_for_nothing(tmp_path, caplog, change):
    digest = make_condition().problem_digest
    path = truth_file(digest, cache_dir=tmp_path, kind=ENUMERATED)
    scenario = ToyScenario()
    found = find_truth(make_condition(), cache_dir=tmp_path, objective=Counting(scenario), bounder=ToyBounder(scenario))
    written = path.read_text()
    path.write_text(written.replace(*change, 1))
    assert known_truth(digest, cache_dir=tmp_path) is None
    assert path.name in caplog.text
    again = find_truth(make_condition(), cache_dir=tmp_path, objective=Counting(scenario), bounder=ToyBounder(scenario))
    assert again == found
    assert known_truth(digest, cache_dir=tmp_path).truth == found


def test_several_objectives_have_no_truth(tmp_path):
    with pytest.raises(InputError, match="several objectives"):
        find_truth(make_condition(Goal.PARETO), cache_dir=tmp_path)


def test_progress_counts_up(tmp_path):
    seen = []
    find_truth(
        make_condition(),
        cache_dir=tmp_path,
        objective=Counting(),
        bounder=ToyBounder(ToyScenario()),
        on_progress=seen.append,
    )
    assert (seen[0].num_bounded, seen[0].num_evaluated) == (SPACE.size, 0)
    assert [entry.num_evaluated for entry in seen] == list(range(len(seen)))
    assert seen[-1].best == best_of(Goal.THROUGHPUT, ToyScenario())[0]


def test_the_real_objective_on_a_small_space(tmp_path):
    """Against every evaluation of a slice of the tiny space."""
    small = replace(SPACE, axes=replace(SPACE.axes, num_tc=(4, 8), num_vc=(4, 8), tc_width=(64,), micro_batch=(2,)))
    condition = replace(make_condition(), space=small)
    truth = find_truth(condition, cache_dir=tmp_path)
    objective = Objective(condition.scenario)
    values = [objective.evaluate(point).throughput_samples_per_s for point in small.points()]
    assert truth.value == max(values)
    record = known_truth(condition.problem_digest, cache_dir=tmp_path)
    assert 1 <= record.num_evaluated < len(values)
    assert record.schedule_gap == objective.evaluate(truth.point).schedule_gap


POINT, OTHER = SPACE.point(3), SPACE.point(4)
DIGEST = "of the problem"
CLAIM = claim_of(SPACE, 3, 100.0, 100.5)


def write(directory, claim=CLAIM, digest=DIGEST, *, space=SPACE):
    return write_certificate(directory, claim, digest, space=space)


def enumerated(value, point=OTHER):
    truth = Truth(TruthKind.ENUMERATED, value, point)
    return TruthRecord(DIGEST, truth, SPACE.size, 11, 0.002, "1.0", 3.0)


def test_a_certificate_is_read_as_it_stands(tmp_path):
    write(tmp_path / "any-name")
    record = certified_truth(DIGEST, certificates=tmp_path)
    assert record.truth == Truth(TruthKind.CERTIFIED, 100.0, POINT, gap=pytest.approx(0.005))
    assert (record.num_points, record.num_evaluated, record.wall_s) == (SPACE.size, 1, 2.5)


def test_the_digest_inside_decides_never_the_name(tmp_path):
    assert certified_truth(DIGEST, certificates=tmp_path / "nowhere") is None
    assert certified_truth(DIGEST, certificates=tmp_path) is None
    write(tmp_path / DIGEST, digest="of another problem")
    assert certified_truth(DIGEST, certificates=tmp_path) is None
    write(tmp_path / "of another problem")
    assert certified_truth(DIGEST, certificates=tmp_path).truth.value == 100.0


def test_only_what_is_proved_counts(tmp_path):
    write(tmp_path / "unproved", claim_of(SPACE, 3, 100.0, 150.0))
    assert certified_truth(DIGEST, certificates=tmp_path) is None


def test_the_tighter_of_two_counts(tmp_path):
    write(tmp_path / "a", claim_of(SPACE, 3, 99.6, 100.5))
    write(tmp_path / "b")
    write(tmp_path / "c", claim_of(SPACE, 3, 99.8, 100.5))
    assert certified_truth(DIGEST, certificates=tmp_path).truth.value == 100.0


def test_a_certificate_that_nothing_is_feasible_is_a_finding(tmp_path):
    write(tmp_path / "none", nothing_of(SPACE))
    record = known_truth(DIGEST, cache_dir=tmp_path, certificates=tmp_path)
    assert record is not None
    assert record.truth is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_text(path.read_text()[:40]),
        lambda path: path.write_text("[]"),
        lambda path: path.write_text(path.read_text().replace('"claim"', '"claims"')),
        lambda path: path.write_text(path.read_text().replace('"value": 100.0', '"value": "much"')),
        lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | {"files": ["pool.json"]})),
        lambda path: path.write_text(path.read_text().replace('"value": 100.0', '"value": 100.1')),
        lambda path: path.write_bytes(b"\x00\xff"),
        lambda path: (path.parent / "pool.json").write_text("{ }"),
        lambda path: (path.parent / "pool.json").unlink(),
    ],
    ids=["truncated", "list", "key", "value", "files", "unsigned", "binary", "changed", "missing"],
)
def test_a_broken_one_is_left_out_with_a_warning(spoil, tmp_path, caplog):
    spoil(write(tmp_path / "broken") / "certificate.json")
    assert certified_truth(DIGEST, certificates=tmp_path) is None
    assert "broken" in caplog.text
    write(tmp_path / "whole")
    assert certified_truth(DIGEST, certificates=tmp_path) is not None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-5]),
        lambda path: path.write_text(path.read_text() + " "),
        lambda path: path.write_text(path.read_text().replace('"digest": "', '"digest": "0')),
        lambda path: path.write_text(path.read_text().replace('"format": ', '"format": 9')),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), os.mkfifo(path)),
    ],
    ids=["missing", "truncated", "longer", "other digest", "other format", "directory", "pipe"],
)
def test_without_a_record_of_its_check_a_certificate_proves_nothing(spoil, tmp_path, caplog):
    place = write(tmp_path / "it")
    digest = json.loads((place / "certificate.json").read_text())["digest"]
    spoil(place / CHECK_FILE)
    assert certified_truth(DIGEST, certificates=tmp_path) is None
    assert caplog.messages == [f"a proof of this problem is not checked: run phaze-opt certify --check '{place}'"]
    forget_check(place)
    keep_check(place, digest)
    assert (certified_truth(DIGEST, certificates=tmp_path) is None) == (place / CHECK_FILE).is_dir()


@pytest.mark.parametrize(
    ("value", "expected", "point", "gap"),
    [(99.0, 100.0, POINT, 0.005), (100.0, 100.0, POINT, 0.005), (100.2, 100.2, OTHER, 100.5 / 100.2 - 1)],
)
def test_with_an_enumeration_the_better_value_stands_under_the_same_bound(tmp_path, value, expected, point, gap):
    write(tmp_path / "it")
    keep_truth(enumerated(value), cache_dir=tmp_path)
    truth = known_truth(DIGEST, cache_dir=tmp_path, certificates=tmp_path).truth
    assert truth == Truth(TruthKind.CERTIFIED, expected, point, gap=pytest.approx(gap))


def test_an_enumeration_above_the_bound_wins_and_says_so(tmp_path, caplog):
    write(tmp_path / "it")
    certified = certified_truth(DIGEST, certificates=tmp_path)
    assert better_truth(certified, enumerated(101.0)) == enumerated(101.0)
    assert "contradicts" in caplog.text


def test_a_copy_says_the_same(tmp_path):
    write(tmp_path / "certificates" / "it")
    record = known_truth(DIGEST, cache_dir=tmp_path, certificates=tmp_path / "certificates")
    keep_truth(record, cache_dir=tmp_path)
    assert known_truth(DIGEST, cache_dir=tmp_path) == record
    assert not truth_file(DIGEST, cache_dir=tmp_path, kind=ENUMERATED).exists()


def search_of(*values):
    """What a yardstick reads of a search."""
    return SimpleNamespace(trials=[SimpleNamespace(values=(value,), point=OTHER) for value in values])


@pytest.mark.parametrize("value", [100.2, 100.5])
def test_a_search_within_the_gap_keeps_the_proof(value):
    truth = Truth(TruthKind.CERTIFIED, 100.0, POINT, gap=0.005)
    yardstick = yardstick_of(Goal.THROUGHPUT, [search_of(90.0, value)], truth)
    assert yardstick.truth == Truth(TruthKind.CERTIFIED, value, OTHER, gap=pytest.approx(100.5 / value - 1, abs=1e-12))
    assert yardstick.beaten_truth is None


def test_a_search_above_the_bound_proves_the_certificate_wrong():
    truth = Truth(TruthKind.CERTIFIED, 100.0, POINT, gap=0.005)
    yardstick = yardstick_of(Goal.THROUGHPUT, [search_of(100.6)], truth)
    assert yardstick.truth == Truth(TruthKind.BEST_KNOWN, 100.6, OTHER)
    assert yardstick.beaten_truth == truth


def test_an_enumeration_is_not_needed(tmp_path):
    class Condition:
        goal, key, problem_digest = Goal.THROUGHPUT, "a.b", DIGEST

    write(tmp_path / "it")
    # Nothing to evaluate with: an enumeration would fail.
    assert find_truth(Condition(), cache_dir=tmp_path, certificates=tmp_path).kind is TruthKind.CERTIFIED


def unseen_index(result, condition):
    """A point that no search of a condition evaluated."""
    seen = {trial.point for cell in result.cells if cell.cell.condition.key == condition.key for trial in cell.trials}
    return next(index for index, point in enumerate(condition.space.points()) if point not in seen)


def test_a_study_is_judged_by_a_certificate_made_after_it(tmp_path):
    """Without truths asked for, and whatever is in between: when it is loaded again."""
    config = replace(CONFIG, contenders=CONFIG.contenders[:1], budget=Budget(evaluations=6))
    result = run_study(config, work_dir=tmp_path, engine=ENGINE)
    assert result.truths == {}
    condition = result.conditions[0]
    best = max(trial.values[0] for cell in result.cells for trial in cell.trials if trial.values)
    index = unseen_index(result, condition)
    claim = claim_of(condition.space, index, 2 * best, 2.001 * best)
    write(tmp_path / "phaze-opt-certificates" / "it", claim, condition.problem_digest, space=condition.space)
    truths = load_study(result.directory).truths
    assert truths == {
        condition.key: Truth(TruthKind.CERTIFIED, 2 * best, condition.space.point(index), gap=pytest.approx(0.0005))
    }
    summary = summarise(load_study(result.directory))
    assert min(score.regret for score in summary.cells if score.workload == condition.workload.name) >= 0.5


def test_a_study_that_asks_for_truths_keeps_a_copy_and_enumerates_nothing(tmp_path):
    judged = Judgement(truth=TruthForm.ENUMERATE, num_bootstrap=100)
    config = replace(CONFIG, contenders=CONFIG.contenders[:1], budget=Budget(evaluations=4), judgement=judged)
    plan = run_study(replace(config, judgement=Judgement()), work_dir=tmp_path / "other", engine=ENGINE)
    for number, condition in enumerate(plan.conditions):
        claim = claim_of(condition.space, unseen_index(plan, condition), 1e9, 1e9)
        place = tmp_path / "phaze-opt-certificates" / str(number)
        write(place, claim, condition.problem_digest, space=condition.space)
    result = run_study(config, work_dir=tmp_path, engine=ENGINE)
    assert {truth.kind for truth in result.truths.values()} == {TruthKind.CERTIFIED}
    assert not list((tmp_path / "phaze-opt-studies" / "truths").glob("*"))
    shutil.rmtree(tmp_path / "phaze-opt-certificates")
    assert load_study(result.directory).truths == result.truths


def test_the_real_prover_against_every_evaluation(tmp_path):
    """The certificate's optimum is the best of all points, found by the digest of the study's own problem."""
    axes = replace(SPACE.axes, num_tc=(4, 8), num_vc=(4, 8), tc_width=(64,), micro_batch=(2,))
    space = replace(SPACE, axes=axes)
    condition = replace(make_condition(), space=space)
    scenario = condition.scenario
    problem = CertifyProblem(scenario, space, condition.constants)
    assert problem.digest == condition.problem_digest
    result = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path / "certificates"))
    keep_check(result.directory, result.certificate.digest)
    truth = find_truth(condition, cache_dir=tmp_path, certificates=tmp_path / "certificates")
    objective = Objective(scenario)
    values = [objective.evaluate(point).throughput_samples_per_s for point in space.points()]
    assert truth.kind is TruthKind.CERTIFIED
    assert truth.point == result.certificate.claim.point
    assert max(values) == pytest.approx(truth.value, rel=max(1e-9, 1.1 * objective.evaluate(truth.point).schedule_gap))
    assert max(values) <= truth.value * (1 + truth.gap) * (1 + 1e-9)
    # Another batch is another problem, whatever the directory is called.
    other = replace(condition, scenario=replace(scenario, global_batch=128))
    assert certified_truth(other.problem_digest, certificates=tmp_path / "certificates") is None


def raised_claim(directory, *, with_row):
    """The claim raised by a quarter, every digest and the record redone; the incumbent's row too, if told so."""
    path = directory / "certificate.json"
    data = json.loads(path.read_text())
    claim = data["claim"]
    claim.update({key: 1.25 * claim[key] for key in ("value", "value_upper", "throughput_samples_per_s")})
    if with_row:
        points = directory / "points.parquet"
        table = parquet.read_table(points)
        columns = table.to_pydict()
        for name in ("throughput_samples_per_s", "throughput_upper_samples_per_s"):
            columns[name] = [1.25 * value for value in columns[name]]
        parquet.write_table(pa.table(columns, schema=table.schema), points)
        data["files"]["points.parquet"] = hashlib.sha256(points.read_bytes()).hexdigest()
    path.write_text(json.dumps(data | {"digest": content_digest(data)}))
    keep_check(directory, content_digest(data))


def test_a_claim_that_its_rows_do_not_say_is_left_out(tmp_path, caplog):
    raised_claim(write(tmp_path / "raised"), with_row=False)
    assert certified_truth(DIGEST, certificates=tmp_path) is None
    assert "the rows give 100" in caplog.text


def test_a_claim_that_the_studys_own_evaluation_contradicts_counts_for_nothing(tmp_path, caplog):
    config = replace(CONFIG, contenders=CONFIG.contenders[:1], budget=Budget(evaluations=6))
    result = run_study(config, work_dir=tmp_path, engine=ENGINE)
    condition = result.conditions[0]
    trials = [trial for cell in result.cells if cell.cell.condition.key == condition.key for trial in cell.trials]
    best = max((trial for trial in trials if trial.values), key=lambda trial: trial.values[0])
    index = list(condition.space.points()).index(best.point)
    place = tmp_path / "phaze-opt-certificates" / "it"
    claim = claim_of(condition.space, index, best.values[0], best.values[0])
    write(place, claim, condition.problem_digest, space=condition.space)
    assert load_study(result.directory).truths[condition.key].value == best.values[0]
    raised_claim(place, with_row=True)
    assert certified_truth(condition.problem_digest, certificates=place.parent).truth.value == 1.25 * best.values[0]
    assert condition.key not in load_study(result.directory).truths
    assert "counts for nothing" in caplog.text


@pytest.mark.parametrize(("value", "is_refuted"), [(1.0, False), (1.05, False), (1.11, True), (0.5, False)])
def test_an_evaluation_contradicts_what_its_schedules_leave_no_room_for(value, is_refuted):
    """Certificates solve schedules further: up to the evaluation's own bound they may attain more."""
    point, evaluation = next(
        (point, evaluation)
        for point in SPACE.points()
        if (evaluation := ToyObjective(ToyScenario()).evaluate(point)).is_feasible
    )
    rate = evaluation.throughput_samples_per_s
    evaluation = replace(evaluation, throughput_bound_samples_per_s=1.1 * rate)
    truth = Truth(TruthKind.CERTIFIED, value * rate, point)
    assert bool(contradiction(truth, Goal.THROUGHPUT, evaluation)) == is_refuted


@pytest.mark.parametrize("batch", [64, pytest.param(96, marks=pytest.mark.slow)])
def test_an_enumeration_attains_what_a_proof_of_the_same_problem_attains(tmp_path, batch):
    """Evaluations whose schedules leave a fifth open are solved as far as a certificate's before one is called best."""
    axes = replace(SPACE.axes, num_tc=(1, 2, 4), num_vc=(1, 2), tc_width=(64,), micro_batch=(2,))
    space = replace(SPACE, axes=axes, min_area_fraction=0.0)
    scenario = replace(make_condition(batch=batch).scenario, schedule_gap=0.2)
    condition = replace(make_condition(), space=space, scenario=scenario)
    truth = find_truth(condition, cache_dir=tmp_path)
    problem = CertifyProblem(scenario, space, condition.constants)
    claim = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path / "certificates")).certificate.claim
    evaluated = max(Objective(scenario).evaluate(point).throughput_samples_per_s for point in space.points())
    assert truth.kind is TruthKind.ENUMERATED
    assert truth.value >= max(evaluated, claim.value) * (1 - 1e-12)
    assert truth.value <= claim.value_upper * (1 + 1e-9)


def test_a_certified_front_is_what_several_objectives_are_measured_by(tmp_path):
    """A search that has all of the front misses nothing, and one that has a part of it what that leaves."""
    axes = replace(SPACE.axes, num_tc=(4, 8), num_vc=(4, 8), tc_width=(64,), micro_batch=(2,))
    condition = replace(make_condition(Goal.PARETO), space=replace(SPACE, axes=axes))
    problem = CertifyProblem(condition.scenario, condition.space, condition.constants, Goal.PARETO)
    assert problem.digest == condition.problem_digest
    result = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path))
    keep_check(result.directory, result.certificate.digest)
    truth = certified_truth(condition.problem_digest, certificates=tmp_path).truth
    assert sorted(truth.front) == sorted(
        (design.throughput_samples_per_s, design.tdp_w, design.area_mm2) for design in result.front
    )
    assert truth.value == max(values[0] for values in truth.front)
    assert front_regret(Goal.PARETO, truth.front, truth.front) == 0.0
    assert 0.0 < front_regret(Goal.PARETO, truth.front[:1], truth.front) <= 1.0
    yardstick = yardstick_of(Goal.PARETO, (), truth)
    assert yardstick.truth is truth
    assert yardstick.box.hypervolume > 0.0
    keep_truth(certified_truth(condition.problem_digest, certificates=tmp_path), cache_dir=tmp_path / "kept")
    assert known_truth(condition.problem_digest, cache_dir=tmp_path / "kept").truth == truth
