"""A certificate of the same problem is the truth: matched by digest, whole, proved; never a negative regret."""

import hashlib
import json
import shutil
from dataclasses import replace

import pytest
from toy_study import CONFIG, ENGINE

from phaze_opt.certify.certificate import FORMAT, CertificateProvenance, Claim
from phaze_opt.certify.content_digest import content_digest
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import Scenario
from phaze_opt.record.plain_data import to_plain
from phaze_opt.study.certified_truth import better_truth, certified_truth
from phaze_opt.study.config import Budget, Judgement, Setting, Workload
from phaze_opt.study.judging.scoring import yardstick_of
from phaze_opt.study.load import load_study
from phaze_opt.study.plan import Condition
from phaze_opt.study.result import Truth, TruthKind, TruthRecord
from phaze_opt.study.run import run_study
from phaze_opt.study.summary import summarise
from phaze_opt.study.truth import ENUMERATED, find_truth, keep_truth, known_truth, truth_file
from phaze_opt.testing.problems import tiny_space
from phaze_opt.workload.config import load_model

SPACE = tiny_space()
POINT, OTHER = SPACE.point(3), SPACE.point(4)
DIGEST = "of the problem"
CLAIM = Claim(
    is_feasible=True,
    incumbent=3,
    point=POINT,
    value=100.0,
    value_upper=100.5,
    throughput_samples_per_s=100.0,
    gap=0.005,
    tolerance=0.01,
    is_proved=True,
    num_points=SPACE.size,
    num_solved=7,
)
INFEASIBLE = Claim(False, -1, None, 0.0, 0.0, 0.0, 0.0, 0.01, True, SPACE.size, 0)


def write_certificate(directory, claim=CLAIM, digest=DIGEST):
    """What of a certificate a study reads, with one further file."""
    directory.mkdir(parents=True)
    (directory / "pool.json").write_text("{}")
    data = {
        "format": FORMAT,
        "claim": to_plain(Claim, claim),
        "problem_digest": digest,
        "files": {"pool.json": hashlib.sha256(b"{}").hexdigest()},
        "provenance": to_plain(CertificateProvenance, CertificateProvenance("1.0", "3.11", "highs", 5, 9, 2.5)),
    }
    (directory / "certificate.json").write_text(json.dumps(data | {"digest": content_digest(data)}))
    return directory


def enumerated(value, point=OTHER):
    truth = Truth(TruthKind.ENUMERATED, value, point)
    return TruthRecord(DIGEST, truth, SPACE.size, 11, 0.002, "1.0", 3.0)


def test_it_is_read_as_it_stands(tmp_path):
    write_certificate(tmp_path / "any-name")
    record = certified_truth(DIGEST, certificates=tmp_path)
    assert record.truth == Truth(TruthKind.CERTIFIED, 100.0, POINT, gap=pytest.approx(0.005))
    assert (record.num_points, record.num_evaluated, record.wall_s) == (SPACE.size, 7, 2.5)


def test_none_where_there_are_none(tmp_path):
    assert certified_truth(DIGEST, certificates=tmp_path / "nowhere") is None
    assert certified_truth(DIGEST, certificates=tmp_path) is None


def test_the_digest_inside_decides_never_the_name(tmp_path):
    write_certificate(tmp_path / DIGEST, digest="of another problem")
    assert certified_truth(DIGEST, certificates=tmp_path) is None
    write_certificate(tmp_path / "of another problem")
    assert certified_truth(DIGEST, certificates=tmp_path).truth.value == 100.0


def test_only_what_is_proved_counts(tmp_path):
    write_certificate(tmp_path / "unproved", replace(CLAIM, is_proved=False))
    assert certified_truth(DIGEST, certificates=tmp_path) is None


def test_the_tighter_of_two_counts(tmp_path):
    write_certificate(tmp_path / "a", replace(CLAIM, value=99.6))
    write_certificate(tmp_path / "b")
    write_certificate(tmp_path / "c", replace(CLAIM, value=99.8))
    assert certified_truth(DIGEST, certificates=tmp_path).truth.value == 100.0


def test_nothing_feasible_is_a_finding(tmp_path):
    write_certificate(tmp_path / "none", INFEASIBLE)
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
    spoil(write_certificate(tmp_path / "broken") / "certificate.json")
    assert certified_truth(DIGEST, certificates=tmp_path) is None
    assert "broken" in caplog.text
    write_certificate(tmp_path / "whole")
    assert certified_truth(DIGEST, certificates=tmp_path) is not None


@pytest.mark.parametrize(
    ("value", "expected", "point", "gap"),
    [(99.0, 100.0, POINT, 0.005), (100.0, 100.0, POINT, 0.005), (100.2, 100.2, OTHER, 100.5 / 100.2 - 1)],
)
def test_with_an_enumeration_the_better_value_stands_under_the_same_bound(tmp_path, value, expected, point, gap):
    write_certificate(tmp_path / "it")
    keep_truth(enumerated(value), cache_dir=tmp_path)
    truth = known_truth(DIGEST, cache_dir=tmp_path, certificates=tmp_path).truth
    assert truth == Truth(TruthKind.CERTIFIED, expected, point, gap=pytest.approx(gap))


def test_an_enumeration_above_the_bound_wins_and_says_so(tmp_path, caplog):
    write_certificate(tmp_path / "it")
    certified = certified_truth(DIGEST, certificates=tmp_path)
    assert better_truth(certified, enumerated(101.0)) == enumerated(101.0)
    assert "contradicts" in caplog.text


def test_a_copy_says_the_same(tmp_path):
    write_certificate(tmp_path / "certificates" / "it")
    record = known_truth(DIGEST, cache_dir=tmp_path, certificates=tmp_path / "certificates")
    keep_truth(record, cache_dir=tmp_path)
    assert known_truth(DIGEST, cache_dir=tmp_path) == record
    assert not truth_file(DIGEST, cache_dir=tmp_path, kind=ENUMERATED).exists()


class Trial:
    """What a yardstick reads of a trial."""

    def __init__(self, value):
        self.values, self.point = (value,), OTHER


class Cell:
    """What a yardstick reads of a search."""

    def __init__(self, *values):
        self.trials = [Trial(value) for value in values]


@pytest.mark.parametrize("value", [100.2, 100.5])
def test_a_search_within_the_gap_keeps_the_proof(value):
    truth = Truth(TruthKind.CERTIFIED, 100.0, POINT, gap=0.005)
    yardstick = yardstick_of(Goal.THROUGHPUT, [Cell(90.0, value)], truth)
    assert yardstick.truth == Truth(TruthKind.CERTIFIED, value, OTHER, gap=pytest.approx(100.5 / value - 1, abs=1e-12))
    assert yardstick.beaten_truth is None


def test_a_search_above_the_bound_proves_the_certificate_wrong():
    truth = Truth(TruthKind.CERTIFIED, 100.0, POINT, gap=0.005)
    yardstick = yardstick_of(Goal.THROUGHPUT, [Cell(100.6)], truth)
    assert yardstick.truth == Truth(TruthKind.BEST_KNOWN, 100.6, OTHER)
    assert yardstick.beaten_truth == truth


def test_an_enumeration_is_not_needed(tmp_path):
    class Condition:
        goal, key, problem_digest = Goal.THROUGHPUT, "a.b", DIGEST

    write_certificate(tmp_path / "it")
    # Nothing to evaluate with: an enumeration would fail.
    assert find_truth(Condition(), cache_dir=tmp_path, certificates=tmp_path).kind is TruthKind.CERTIFIED


def test_a_study_is_judged_by_a_certificate_made_after_it(tmp_path):
    """Without truths asked for, and whatever is in between: when it is loaded again."""
    config = replace(CONFIG, contenders=CONFIG.contenders[:1], budget=Budget(evaluations=6))
    result = run_study(config, work_dir=tmp_path, engine=ENGINE)
    assert result.truths == {}
    condition = result.conditions[0]
    best = max(trial.values[0] for cell in result.cells for trial in cell.trials if trial.values)
    claim = replace(CLAIM, value=2 * best, value_upper=2.001 * best, point=condition.space.point(0))
    write_certificate(tmp_path / "phaze-opt-certificates" / "it", claim, condition.problem_digest)
    truths = load_study(result.directory).truths
    assert truths == {
        condition.key: Truth(TruthKind.CERTIFIED, 2 * best, condition.space.point(0), gap=pytest.approx(0.0005))
    }
    summary = summarise(load_study(result.directory))
    assert min(score.regret for score in summary.cells if score.workload == condition.workload.name) >= 0.5
    assert any("no design exceeds by more than 0.05 %" in sentence for sentence in summary.findings)


def test_a_study_that_asks_for_truths_keeps_a_copy_and_enumerates_nothing(tmp_path):
    judged = Judgement(truth="enumerate", num_bootstrap=100)
    config = replace(CONFIG, contenders=CONFIG.contenders[:1], budget=Budget(evaluations=4), judgement=judged)
    plan = run_study(replace(config, judgement=Judgement()), work_dir=tmp_path / "other", engine=ENGINE).conditions
    for number, condition in enumerate(plan):
        claim = replace(CLAIM, value=1e9, value_upper=1e9, point=condition.space.point(0))
        write_certificate(tmp_path / "phaze-opt-certificates" / str(number), claim, condition.problem_digest)
    result = run_study(config, work_dir=tmp_path, engine=ENGINE)
    assert {truth.kind for truth in result.truths.values()} == {TruthKind.CERTIFIED}
    assert not list((tmp_path / "phaze-opt-studies" / "truths").glob("*"))
    shutil.rmtree(tmp_path / "phaze-opt-certificates")
    assert load_study(result.directory).truths == result.truths


def test_the_real_prover_against_every_evaluation(tmp_path):
    """The certificate's optimum is the best of all points, found by the digest of the study's own problem."""
    axes = replace(SPACE.axes, num_tc=(4, 8), num_vc=(4, 8), tc_width=(64,), micro_batch=(2,))
    space = replace(SPACE, axes=axes)
    constants = load_constants()
    cluster = Cluster(16, load_network("two-level", num_devices=16, constants=constants))
    scenario = Scenario((load_model("tiny"),), cluster, 64, tensor_parallel=(1, 2))
    condition = Condition(Setting(), Workload("tiny", ("tiny",)), scenario, space, constants)
    problem = CertifyProblem(scenario, space, constants)
    assert problem.digest == condition.problem_digest
    result = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path / "certificates"))
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
