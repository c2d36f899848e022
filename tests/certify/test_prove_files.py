"""Certificates on disk: what they hold, the same bytes for any number of jobs and after any interruption."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from small_problems import contents, flip_a_bit, small_model, small_problem, small_scenario, small_space, tear

from phaze_opt.certify import proof, tasks
from phaze_opt.certify.certificate import JOURNAL_DIRECTORY, Certificate, Claim, PoolFile, SolutionsFile, TreeEntry
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.finished_tasks import JOURNAL_FILE, ProofPieces
from phaze_opt.certify.problem import CertifyOptions
from phaze_opt.certify.prove import certify
from phaze_opt.certify.tasks import ProofBench
from phaze_opt.certify.writing import certificate_directory, put_back
from phaze_opt.errors import InputError
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.record.journal import Journal, read_journal
from phaze_opt.record.plain_data import from_plain
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.workload.training import AttentionForm

NUM_BEST = 16
FILES = {"certificate.json", "points.parquet", "pool.json", "multipliers.npz", "solutions.json"}


def type_problem():
    """One whose proof needs several rounds and a proof tree."""
    scenario = small_scenario(exclusivity=Exclusivity.TYPE, max_tdp_w=150.0)
    space = small_space(num_tc=(4, 16), num_vc=(2, 8), tc_width=(16, 32, 64), micro_batch=(1, 2, 4))
    return small_problem(scenario, space)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A certificate made in one go."""
    problem = type_problem()
    return problem, certify(
        problem, CertifyOptions(tolerance=0.0, num_best=NUM_BEST, directory=tmp_path_factory.mktemp("c"))
    )


def test_files_say_what_was_proved(whole):
    problem, result = whole
    assert {path.name for path in result.directory.iterdir()} == FILES
    certificate = from_plain(Certificate, json.loads((result.directory / "certificate.json").read_text()))
    assert certificate == result.certificate
    assert certificate.problem_digest == problem.digest
    for name, digest in certificate.files.items():
        assert hashlib.sha256((result.directory / name).read_bytes()).hexdigest() == digest
    rows = pq.read_table(result.directory / "points.parquet").to_pylist()
    assert [row["index"] for row in rows] == list(range(problem.space.size))
    objective = Objective(problem.scenario, constants=problem.constants)
    for row, point in zip(rows, problem.space.points(), strict=True):
        assert all(row.get(name, 0) == getattr(point, name) for name in point.__dataclass_fields__)
        evaluation = objective.evaluate(point)
        assert (row["area_mm2"], row["tdp_w"]) == pytest.approx((evaluation.area_mm2, evaluation.tdp_w), rel=1e-12)
        assert (row["status"] == "solved") == (row["throughput_samples_per_s"] > 0.0)
        assert (row["bound"] == "none") == (row["multipliers_index"] == -1) == (row["reason"][:4] == "over")
        assert (row["throughput_upper_samples_per_s"] == 0.0) == (row["reason"] != "")
        assert row["throughput_samples_per_s"] <= row["throughput_upper_samples_per_s"]
    assert {row["bound"] for row in rows} >= {"none", "relaxed"}
    with np.load(result.directory / "multipliers.npz") as tables:
        for micro_batch in problem.space.axes.micro_batch:
            table = tables[f"mb{micro_batch}"]
            used = {row["multipliers_index"] for row in rows if row["micro_batch"] == micro_batch} - {-1}
            assert table.dtype == np.int32
            assert table.shape == (len(used), len(certificate.slots))
            assert used == set(range(len(used)))


def test_pool_and_solutions_read_back(whole):
    _, result = whole
    pool = from_plain(PoolFile, json.loads((result.directory / "pool.json").read_text()))
    solutions = from_plain(SolutionsFile, json.loads((result.directory / "solutions.json").read_text()))
    indices = [solution.index for solution in solutions.solutions]
    assert indices == sorted(indices)
    assert len(indices) == result.certificate.claim.num_solved
    entries = [entry for topology in pool.topologies for block in topology.blocks for entry in block.entries]
    assert any(isinstance(entry, TreeEntry) for entry in entries)
    for slot in result.certificate.slots:
        assert len(pool.topologies[slot.topology].blocks[slot.block].operators) > 1


def test_the_checker_accepts_it(whole):
    _, result = whole
    check_certificate(result.directory)


def test_the_checker_accepts_common_designs_per_watt(tmp_path):
    models = (small_model(), small_model("deep", num_layers=6))
    scenario = small_scenario(*models, common=CommonMean.WORST, attention=AttentionForm.UNFUSED)
    problem = small_problem(scenario, small_space(micro_batch=(1, 4)), goal=Goal.THROUGHPUT_PER_TDP)
    check_certificate(certify(problem, CertifyOptions(directory=tmp_path)).directory)


def test_two_jobs_write_the_same_bytes(whole, tmp_path, monkeypatch):
    problem, result = whole
    monkeypatch.setattr(tasks, "QUICK_S", 0.0)
    other = certify(problem, CertifyOptions(tolerance=0.0, num_best=NUM_BEST, directory=tmp_path, jobs=2))
    assert contents(other.directory) == contents(result.directory)


class _Stop(BaseException):
    """Stands for a kill: nothing catches it."""


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(proof, "CHUNK_POINTS", 10)


def stopped_at(problem, options, moment):
    """Certify, stopped at the ``moment``-th report; whether it came to that."""
    reports = 0

    def stop(_):
        nonlocal reports
        reports += 1
        if reports == moment:
            raise _Stop

    try:
        certify(problem, options, on_progress=stop)
    except _Stop:
        return True
    return False


def test_a_proof_stopped_at_any_moment_resumes_to_the_same_bytes(whole, tmp_path, small_chunks):
    problem, result = whole
    options = CertifyOptions(tolerance=0.0, num_best=NUM_BEST, directory=tmp_path, is_resumed=True)
    directory = certificate_directory(problem, among=tmp_path)
    moments = 0
    # Each session gets one step further than what it finds in the journal.
    while stopped_at(problem, options, moments + 1):
        moments += 1
        journal = directory / JOURNAL_DIRECTORY / JOURNAL_FILE
        if moments % 3 == 0:
            journal.write_bytes(journal.read_bytes() + b'{"round": 7, "outco')
    assert moments >= 6
    assert contents(directory) == contents(result.directory)


def test_resuming_does_not_repeat_what_is_kept(whole, tmp_path, small_chunks, monkeypatch):
    problem, result = whole
    options = CertifyOptions(tolerance=0.0, num_best=NUM_BEST, directory=tmp_path, is_resumed=True)
    num_chunks = -(-problem.space.size // 10)
    assert stopped_at(problem, options, num_chunks + 2)
    journal = certificate_directory(problem, among=tmp_path) / JOURNAL_DIRECTORY
    lines = read_journal(journal / JOURNAL_FILE).values
    assert len(list(journal.glob("bounds-*.npz"))) == num_chunks
    assert [line["round"] for line in lines if "round" in line] == [0, 1]
    monkeypatch.setattr("phaze_opt.certify.tasks.ProofBench._bound", lambda *_: pytest.fail("bounded again"))
    final = certify(problem, options)
    assert contents(final.directory) == contents(result.directory)


def test_interrupt_keeps_the_journal(tmp_path):
    problem = small_problem()

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certify(problem, CertifyOptions(directory=tmp_path), on_progress=interrupt)
    journal = certificate_directory(problem, among=tmp_path) / JOURNAL_DIRECTORY
    assert list(journal.glob("bounds-*.npz"))


def test_a_journal_of_another_tolerance_is_started_afresh(tmp_path):
    problem = small_problem()
    directory = certificate_directory(problem, among=tmp_path)
    assert stopped_at(problem, CertifyOptions(directory=tmp_path, tolerance=0.5), 2)
    journal = directory / JOURNAL_DIRECTORY
    (journal / "bounds-000000.npz").write_bytes(b"not what the other would read")
    result = certify(problem, CertifyOptions(directory=tmp_path, tolerance=0.0, is_resumed=True))
    assert result.certificate.claim.is_proved


def change_a_round(path):
    """A digit of the first round is another one."""
    lines = path.read_text().splitlines(keepends=True)
    number = next(number for number, line in enumerate(lines) if '"round": 0' in line)
    lines[number] = lines[number].replace('"num_placements": ', '"num_placements": 1')
    path.write_text("".join(lines))


@pytest.mark.parametrize(
    ("name", "spoil", "num_bounded", "num_rounds"),
    [
        ("bounds-000001.npz", flip_a_bit, 1, 0),
        ("bounds-000001.npz", tear, 1, 0),
        ("bounds-000001.npz", lambda path: path.unlink(), 1, 0),
        (JOURNAL_FILE, change_a_round, 0, 1),
    ],
    ids=["bit", "cut", "missing", "round"],
)
def test_a_broken_piece_of_the_journal_is_done_again_and_no_other(
    name, spoil, num_bounded, num_rounds, whole, tmp_path, small_chunks, monkeypatch
):
    problem, result = whole
    options = CertifyOptions(tolerance=0.0, num_best=NUM_BEST, directory=tmp_path, is_resumed=True)
    assert stopped_at(problem, options, -(-problem.space.size // 10) + 2)
    spoil(certificate_directory(problem, among=tmp_path) / JOURNAL_DIRECTORY / name)
    bounded, kept = [], []
    bound, keep = ProofBench._bound, ProofPieces.keep_round
    monkeypatch.setattr(ProofBench, "_bound", lambda self, work: bounded.append(work.start) or bound(self, work))
    monkeypatch.setattr(
        ProofPieces, "keep_round", lambda self, number, outcomes: kept.append(number) or keep(self, number, outcomes)
    )
    assert contents(certify(problem, options).directory) == contents(result.directory)
    assert len(bounded) == num_bounded
    assert [number for number in kept if number < 2] == [0] * num_rounds


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "append", full)
    with pytest.raises(InputError, match="No space left on device"):
        certify(small_problem(), CertifyOptions(directory=tmp_path))


def test_a_finished_certificate_is_read_back_when_resumed(whole, monkeypatch):
    problem, result = whole
    monkeypatch.setattr("phaze_opt.certify.prove.prove_problem", lambda *_, **__: pytest.fail("proved again"))
    options = CertifyOptions(tolerance=1e-3, num_best=NUM_BEST, directory=result.directory.parent, is_resumed=True)
    again = certify(problem, options)
    assert again.certificate == result.certificate
    assert again.flatness == result.flatness
    assert [design.index for design in again.best] == [design.index for design in result.best]
    assert [design.value for design in again.best] == pytest.approx([design.value for design in result.best], rel=1e-9)


@pytest.mark.parametrize("name", ["certificate.json", "points.parquet"])
def test_a_finished_certificate_that_was_changed_is_proved_again(name, whole, tmp_path):
    problem, result = whole
    directory = tmp_path / result.directory.name
    shutil.copytree(result.directory, directory)
    if name == "certificate.json":
        text = (directory / name).read_text()
        assert text.count('"tolerance": 0.0') == 1
        (directory / name).write_text(text.replace('"tolerance": 0.0', '"tolerance": 1e-05'))
    else:
        (directory / name).write_bytes(b"")
    options = CertifyOptions(tolerance=1e-3, num_best=4, directory=tmp_path, is_resumed=True)
    again = certify(problem, options)
    assert again.certificate.claim.tolerance == 1e-3
    assert check_certificate(directory).claim.is_proved


def test_a_move_half_done_is_undone(tmp_path):
    directory = tmp_path / "c"
    before = tmp_path / ".c.before"
    before.mkdir()
    (before / "certificate.json").write_text("{}")
    put_back(directory)
    assert (directory / "certificate.json").exists()
    assert not before.exists()
    before.mkdir()
    put_back(directory)
    assert not before.exists()


def test_two_proofs_of_one_problem_do_not_take_each_others_journal(tmp_path):
    """The second is refused in a sentence while the first is under way, and the first ends as if alone."""
    problem, refused = small_problem(), []

    def start_another(_):
        if not refused:
            with pytest.raises(InputError, match="another process is proving this problem") as caught:
                certify(problem, CertifyOptions(directory=tmp_path))
            refused.append(caught)

    result = certify(problem, CertifyOptions(directory=tmp_path), on_progress=start_another)
    assert refused
    assert check_certificate(result.directory).claim.is_proved
    assert certify(problem, CertifyOptions(directory=tmp_path)).certificate.claim == result.certificate.claim
    assert {path.name for path in tmp_path.iterdir()} == {result.directory.name, f".{result.directory.name}.lock"}


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        certify(small_problem(), CertifyOptions(directory=tmp_path / "file"))


def test_nothing_feasible_makes_a_certificate(tmp_path):
    problem = small_problem(small_scenario(max_area_mm2=1.0))
    result = certify(problem, CertifyOptions(directory=tmp_path))
    claim = result.certificate.claim
    assert claim == Claim(False, -1, None, 0.0, 0.0, 0.0, 0.0, 1e-3, True, problem.space.size, 0)
    assert {flat.at_most for flat in result.flatness} == {0}
    assert certify(problem, CertifyOptions(directory=tmp_path, is_resumed=True)).best == ()


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {folder!r})
from test_prove_files import type_problem
from phaze_opt.certify.problem import CertifyOptions
from phaze_opt.certify.prove import certify
if __name__ == "__main__":
    certify(type_problem(), CertifyOptions(tolerance=0.0, num_best={num_best}, directory=Path({place!r}), jobs={jobs},
        is_resumed=True))
"""


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_processes_resume_to_the_same_bytes(whole, tmp_path, jobs):
    problem, result = whole
    script = tmp_path / "run.py"
    script.write_text(
        SCRIPT.format(folder=str(Path(__file__).parent), place=str(tmp_path / "c"), jobs=jobs, num_best=NUM_BEST)
    )
    directory = certificate_directory(problem, among=tmp_path / "c")
    for delay_s in np.linspace(0.5, 6.0, 12):
        process = subprocess.Popen([sys.executable, str(script)], start_new_session=True)
        time.sleep(delay_s)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run([sys.executable, str(script)], check=True)
    assert contents(directory) == contents(result.directory)
    assert json.loads((directory / "certificate.json").read_text())["claim"]["is_proved"]
