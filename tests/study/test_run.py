"""Running studies: the same results for any number of jobs, after any interruption, whatever observers do."""

import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import toy_study
from kits.planted import plant
from toy_study import CONFIG, ENGINE, Recorder, Unloadable, build_toy, die_on_bert, faulty_engine, refuse_bert, table

from phaze_opt.errors import InputError, PluginError, SolverError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.record.journal import format_line, parse_line, read_value, write_value
from phaze_opt.record.progress import Progress
from phaze_opt.report.study.inputs import read_inputs
from phaze_opt.search.run import run_search
from phaze_opt.study.compare import compare_studies
from phaze_opt.study.config import Budget, Contender, Setting, StudyWorkload, search_config
from phaze_opt.study.directory import StudyDirectory
from phaze_opt.study.events import CellFinished, StudyEvent, StudyFinished, StudyStarted
from phaze_opt.study.files.resolve import plan_cells, resolve_study
from phaze_opt.study.load import load_study, open_evaluations
from phaze_opt.study.result import StudyResult
from phaze_opt.study.run import CellRunner, run_study
from phaze_opt.study.stores.store import LocalStore

HERE = Path(__file__).parent / "outside"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study that is finished, to be copied."""
    return run_study(CONFIG, work_dir=tmp_path_factory.mktemp("finished"), engine=ENGINE).directory


@pytest.fixture
def first(finished: Path, tmp_path: Path) -> StudyResult:
    """The finished study in a test's own working directory."""
    return load_study(Path(shutil.copytree(finished, tmp_path / finished.relative_to(finished.parents[1]))))


def test_every_cell_is_what_its_search_alone_would_be(undisturbed: list[object], tmp_path: Path) -> None:
    conditions = resolve_study(CONFIG)
    cells = plan_cells(CONFIG, conditions)
    assert [row[0] for row in undisturbed] == [cell.key for cell in cells]
    for cell, row in zip(cells, undisturbed, strict=True):
        alone = search_config(CONFIG, cell)
        objective = build_toy(cell.condition)
        result = run_search(
            replace(alone, work_dir=tmp_path),
            scenario=cell.condition.scenario,
            space=cell.condition.space,
            objective_factory=lambda _, objective=objective: objective,
            bounder_factory=None,
        )
        trials = [(r.number, r.point, r.values, r.evaluation.status.value, r.is_repeat) for r in result.trials]
        assert row[1] == trials
        assert row[2][2:4] == (result.ilp_solves, result.placements)


def test_order_changes_nothing(undisturbed: list[object], tmp_path: Path) -> None:
    conditions = resolve_study(CONFIG)
    directory = StudyDirectory(tmp_path / "toy")
    with closing(LocalStore(directory.evaluations)) as store:
        runner = CellRunner(CONFIG, directory, ENGINE, store)
        for cell in reversed(plan_cells(CONFIG, conditions)):
            runner.run(cell)
    found = {
        path.stem: [json.loads(line).get("values") for line in path.read_text().splitlines()[:-1]]
        for path in (tmp_path / "toy" / "cells").iterdir()
    }
    assert found == {row[0]: [list(trial[2]) for trial in row[1]] for row in undisturbed}


def test_a_study_read_back_is_the_one_that_ran(tmp_path: Path) -> None:
    result = run_study(CONFIG, work_dir=tmp_path, engine=ENGINE)
    again = load_study(result.directory)
    assert again == result
    for condition, other in zip(result.conditions, again.conditions, strict=True):
        assert other.problem_digest == condition.problem_digest
    read = open_evaluations(again, again.conditions[0])
    for trial in again.cells[0].trials:
        assert read(trial.point) == build_toy(again.conditions[0]).evaluate(trial.point)
    with pytest.raises(InputError, match="was not evaluated"):
        read(DesignPoint(1, 1, 2, 2, 2, 1, 1, 1))


def test_each_point_is_evaluated_once_for_all_searches(tmp_path: Path) -> None:
    counting = _Counting()
    engine = replace(ENGINE, build_objective=counting)
    settings = (Setting(silicon="phaze"), Setting(name="per-watt", goal=toy_study.PER_TDP, silicon="phaze"))
    result = run_study(replace(CONFIG, settings=settings), work_dir=tmp_path, engine=engine)
    points = {(cell.cell.condition.workload.name, trial.point) for cell in result.cells for trial in cell.trials}
    assert len(counting.points) == len(set(counting.points)) == len(points)
    assert sum(cell.distinct_evaluations for cell in result.cells) > len(points)


def test_a_search_is_charged_for_what_others_evaluated(tmp_path: Path) -> None:
    """Two contenders that propose the same points are charged the same time, whoever came first."""
    twins = (Contender("one", "random"), Contender("two", "random"))
    result = run_study(replace(CONFIG, contenders=twins), work_dir=tmp_path, engine=ENGINE)
    by_key = {cell.cell.key: cell for cell in result.cells}
    for key, cell in by_key.items():
        twin = by_key[key.replace(".one.", ".two.")]
        assert [trial.wall_s for trial in twin.trials] == [trial.wall_s for trial in cell.trials]
        assert sum(trial.wall_s for trial in cell.trials) > 0


def test_started_afresh_it_puts_the_earlier_one_aside(first: StudyResult, tmp_path: Path) -> None:
    marker = first.directory / "marker"
    marker.touch()
    second = run_study(CONFIG, work_dir=tmp_path, engine=ENGINE)
    assert second.directory == first.directory
    assert not marker.exists()
    aside = first.directory.with_name(f"{first.study_id}.1")
    assert (aside / "marker").exists()
    assert table(load_study(aside)) == table(second)


def test_resume_keeps_finished_searches_and_evaluates_nothing_again(first: StudyResult, tmp_path: Path) -> None:
    removed = sorted((first.directory / "cells").iterdir())[::2]
    for path in removed:
        path.unlink()
    assert not load_study(first.directory).is_complete
    engine = replace(ENGINE, build_objective=_refuse)
    again = run_study(CONFIG, work_dir=tmp_path, engine=engine, is_resumed=True)
    assert table(again) == table(first)
    assert [t.wall_s for c in again.cells for t in c.trials] == [t.wall_s for c in first.cells for t in c.trials]


def test_torn_lines_cost_their_evaluation_only(undisturbed: list[object], first: StudyResult, tmp_path: Path) -> None:
    for path in (first.directory / "cells").iterdir():
        path.unlink()
    for path in (first.directory / "evaluations").glob("*.jsonl"):
        data = path.read_bytes()
        path.write_bytes(data[: len(data) - 100])
    again = run_study(CONFIG, work_dir=tmp_path, engine=ENGINE, is_resumed=True)
    assert table(again) == undisturbed
    assert table(load_study(again.directory)) == undisturbed


def test_observers_are_told_of_a_search_that_lost_an_evaluation_once_it_has_it_again(
    undisturbed: list[object], first: StudyResult, tmp_path: Path
) -> None:
    path = next(iter(sorted((first.directory / "evaluations").glob("*.jsonl"))))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    told = Recorder()
    assert table(run_study(CONFIG, work_dir=tmp_path, engine=ENGINE, is_resumed=True, observers=(told,))) == undisturbed
    cells = [event for event in told.events if isinstance(event, CellFinished)]
    assert [event.result.cell.key for event in cells] == [cell.cell.key for cell in first.cells]


def test_a_changed_digit_costs_its_line_only(
    undisturbed: list[object], first: StudyResult, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a finished search: it is run again. Of an evaluation: it is done again. Neither is believed."""
    for folder in ("cells", "evaluations"):
        path = next(iter(sorted((first.directory / folder).glob("*.jsonl"))))
        path.write_text(path.read_text().replace('"wall_s": ', '"wall_s": 1', 1))
    again = run_study(CONFIG, work_dir=tmp_path, engine=ENGINE, is_resumed=True)
    assert caplog.text.count("was changed since it was written; its search is run again") == 1
    assert "a line that was torn or changed" in caplog.text
    assert table(again) == table(load_study(again.directory)) == undisturbed
    caplog.clear()
    run_study(CONFIG, work_dir=tmp_path, engine=replace(ENGINE, build_objective=_refuse), is_resumed=True)
    assert "its search is run again" not in caplog.text


def test_a_changed_plan_is_refused_in_one_sentence(first: StudyResult, tmp_path: Path) -> None:
    plan = first.directory / "study.json"
    plan.write_text(plan.read_text().replace('"evaluations": 12', '"evaluations": 13', 1))
    with pytest.raises(InputError) as caught:
        run_study(CONFIG, work_dir=tmp_path, engine=ENGINE, is_resumed=True)
    assert caught.value.source == str(plan)
    plan.unlink()
    assert table(run_study(CONFIG, work_dir=tmp_path, engine=ENGINE, is_resumed=True)) == table(first)


@pytest.mark.parametrize("key", ["constants", "provenance", "conditions", "entries"])
@pytest.mark.parametrize("value", [1, "x", None, [1], "again"])
def test_a_plan_of_another_form_with_its_checksum_is_refused(
    key: str, value: object, finished: Path, tmp_path: Path
) -> None:
    directory = shutil.copytree(finished, tmp_path / finished.name)
    plan = read_value(directory / "study.json", kind="a plan")
    assert plan is not None
    if key == "entries":
        plan["constants"] = {name: {**data, "entries": value} for name, data in plan["constants"].items()}
    else:
        plan[key] = plan[key] * 1000 if value == "again" and isinstance(plan[key], list) else value
    write_value(directory / "study.json", plan)
    with pytest.raises(InputError, match="holds no plan that this version understands"):
        load_study(directory)


@pytest.mark.parametrize("part", ["conditions", "config", "plugins"])
def test_what_a_study_left_runs_no_code(part: str, first: StudyResult, tmp_path: Path) -> None:
    """Its plan and every evaluation name a file; what a scenario rests on is refused, as no other is loaded."""
    planted = plant(tmp_path)
    for path in first.directory.rglob("*.json*"):
        lines = [parse_line(line) for line in path.read_bytes().splitlines()]
        for line in lines if path.parent.name == "evaluations" else ():
            line["evaluation"] = planted.named_in(line["evaluation"])
        if path.name == "study.json":
            lines[0][part] = planted.named_in(lines[0][part])
        path.write_text("".join(map(format_line, lines)))
    if part == "conditions":
        with pytest.raises(InputError, match=r"study\.json: 'estimator': .* is code in a file"):
            load_study(first.directory)
    else:
        result = load_study(first.directory)
        assert compare_studies(result, result).first
        assert read_inputs(result).summary
        condition = result.conditions[0]
        assert open_evaluations(result, condition)(result.cells[0].trials[0].point).provenance
    assert not planted.has_run


def test_a_resumed_study_changes_no_file_that_its_own_are_links_to(
    undisturbed: list[object], first: StudyResult, tmp_path: Path
) -> None:
    victims = {}
    for number, path in enumerate(sorted(first.directory.rglob("*.jsonl"))):
        content = path.read_bytes()
        victim = tmp_path / f"victim{number}"
        victim.write_bytes(content[: content[:-1].rfind(b"\n") + 1])  # the last line is missing
        path.unlink()
        (path.symlink_to if number % 2 else path.hardlink_to)(victim)
        victims[victim] = victim.read_bytes()
    assert table(run_study(CONFIG, work_dir=tmp_path, engine=ENGINE, is_resumed=True)) == undisturbed
    assert {victim: victim.read_bytes() for victim in victims} == victims
    for path in first.directory.rglob("*.jsonl"):
        assert not path.is_symlink()
        assert path.stat().st_nlink == 1


@pytest.mark.parametrize(
    ("place", "value"),
    [("overhead_s", math.nan), ("probes", math.inf), ("values", [math.nan]), ("wall_s", -math.inf), ("point", [2] * 8)],
)
def test_a_search_of_odd_numbers_with_its_checksums_is_run_again(
    place: str, value: object, undisturbed: list[object], first: StudyResult, tmp_path: Path
) -> None:
    path = sorted((first.directory / "cells").glob("*.jsonl"))[0]
    *trials, last = [parse_line(line) for line in path.read_text().splitlines()]
    (last["summary"] if place in last["summary"] else trials[0])[place] = value
    path.write_text("".join(format_line(line) for line in (*trials, last)))
    assert table(run_study(CONFIG, work_dir=tmp_path, engine=ENGINE, is_resumed=True)) == undisturbed


def test_the_name_of_a_study_says_what_its_searches_depend_on(tmp_path: Path) -> None:
    names = [
        run_study(config, work_dir=tmp_path, engine=ENGINE, is_resumed=True).study_id
        for config in (
            CONFIG,
            replace(CONFIG, description="Another.", judgement=replace(CONFIG.judgement, confidence=0.9)),
            replace(CONFIG, batch=2),
            replace(CONFIG, seeds=(0, 2)),
            replace(CONFIG, budget=Budget(evaluations=11)),
        )
    ]
    assert names[0] == names[1]
    assert len(set(names)) == 4


def test_jobs_change_nothing_and_events_come_in_the_order_of_the_plan_and_again_on_resume(
    undisturbed: list[object], tmp_path: Path
) -> None:
    for jobs, is_resumed in ((2, False), (1, True)):
        observer = Recorder()
        result = run_study(
            CONFIG, work_dir=tmp_path, engine=ENGINE, jobs=jobs, is_resumed=is_resumed, observers=(observer,)
        )
        assert table(result) == undisturbed
        first, *cells, last = observer.events
        assert isinstance(first, StudyStarted)
        assert first.num_cells == 8
        assert json.loads(json.dumps(first.config)) == first.config
        assert [event.result for event in cells] == list(result.cells)
        for event in cells:
            assert isinstance(event, CellFinished)
            values = [trial.values for trial in event.result.trials]
            feasible = [value[0] for value in values if value]
            assert values[event.best_number][0] == max(feasible)
            for trial, evaluation in zip(event.result.trials, event.evaluations, strict=True):
                assert evaluation == build_toy(event.result.cell.condition).evaluate(trial.point)
        assert isinstance(last, StudyFinished)
        assert last.is_complete
        assert set(last.contender_metrics) == {"random", "tpe"}
        assert set(last.cell_metrics) == {cell.cell.key for cell in result.cells}
        for cell in result.cells:
            curve = last.cell_regrets_pct[cell.cell.key]
            assert len(curve) == cell.evaluations
            assert curve[-1] == pytest.approx(last.cell_metrics[cell.cell.key]["regret_pct"])


def test_an_observer_that_fails_changes_nothing(
    undisturbed: list[object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result = run_study(CONFIG, work_dir=tmp_path, engine=ENGINE, observers=(_Broken(),))
    assert table(result) == undisturbed
    assert caplog.text.count("observer _Broken failed") == 1


def test_ctrl_c_keeps_what_is_finished(undisturbed: list[object], tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.what.startswith("2 of ") and progress.num_done == 2 * 12 + 5:
            raise KeyboardInterrupt

    result = run_study(CONFIG, work_dir=tmp_path, engine=ENGINE, on_progress=interrupt)
    assert result.is_interrupted
    assert not result.is_complete
    assert len(result.cells) == 2
    again = run_study(CONFIG, work_dir=tmp_path, engine=ENGINE, is_resumed=True)
    assert not again.is_interrupted
    assert table(again) == undisturbed


def test_a_killed_worker_costs_its_unfinished_evaluation_only(undisturbed: list[object], tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.mkdir()
    for number in range(2):
        (tokens / f"kill{number}").touch()
    result = run_study(CONFIG, work_dir=tmp_path, engine=faulty_engine(tokens), jobs=2)
    assert not list(tokens.iterdir())
    assert table(result) == undisturbed


def test_a_search_that_kills_its_worker_twice_is_an_error_and_the_others_are_kept(
    undisturbed: list[object], tmp_path: Path
) -> None:
    """Every search of bert does, in whatever process and order; those of tiny are finished."""
    config = replace(CONFIG, seeds=(0,))
    with pytest.raises(SolverError, match=r"died 2 times in default\.bert.*--resume"):
        run_study(config, work_dir=tmp_path, engine=replace(ENGINE, build_objective=die_on_bert), jobs=2)
    (directory,) = (path.parent for path in tmp_path.glob("phaze-opt-studies/*/study.json"))
    finished = {path.stem for path in (directory / "cells").iterdir()}
    assert finished == {f"default.tiny.{name}.0" for name in ("random", "tpe")}
    again = run_study(config, work_dir=tmp_path, engine=ENGINE, is_resumed=True)
    assert table(again) == [row for row in undisturbed if row[0].endswith(".0")]


def test_workers_that_cannot_start_are_said_to(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SolverError, match=r"end as they start.*--jobs 1"):
        run_study(CONFIG, work_dir=tmp_path, engine=replace(ENGINE, build_objective=Unloadable()), jobs=2)
    capfd.readouterr()


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_a_search_raises_ends_the_study_and_keeps_the_rest(tmp_path: Path, jobs: int) -> None:
    with pytest.raises(InputError, match="the toy refuses bert"):
        run_study(CONFIG, work_dir=tmp_path, engine=replace(ENGINE, build_objective=refuse_bert), jobs=jobs)
    (directory,) = (path.parent for path in tmp_path.glob("phaze-opt-studies/*/study.json"))
    assert {cell.cell.condition.workload.name for cell in load_study(directory).cells} <= {"tiny"}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"seeds": ()}, "at least one seed"),
        ({"seeds": (1, 1)}, "names a seed twice"),
        ({"workloads": ()}, "no workload"),
        ({"contenders": ()}, "no strategy"),
        ({"contenders": (Contender("a", "random"), Contender("a", "tpe"))}, "there twice"),
        ({"contenders": (Contender("a.b", "random"),)}, "letters, digits and dashes"),
        ({"contenders": (Contender("a", "tpe", {"nope": 1}),)}, "no option 'nope'"),
        ({"contenders": (Contender("a", "nope"),)}, "no plug-in is named 'nope'"),
        ({"workloads": (StudyWorkload("w", ("nope",)),)}, "no model and no file"),
        ({"settings": (Setting(network="nope"),)}, "no network is named"),
        ({"settings": (Setting(constants={"nope": 1.0}),)}, "no constant is named"),
        ({"num_starts": 13}, "starting points"),
    ],
)
def test_a_faulty_plan_starts_nothing(tmp_path: Path, change: dict[str, object], match: str) -> None:
    with pytest.raises((InputError, PluginError), match=match):
        run_study(replace(CONFIG, **change), work_dir=tmp_path, engine=ENGINE)
    assert not list(tmp_path.iterdir())


def test_a_study_that_runs_is_not_started_afresh(tmp_path: Path) -> None:
    refusals = []

    def start_again(progress: Progress) -> None:
        if progress.num_done == 5:
            code = "import toy_study; from phaze_opt.study.run import run_study; from pathlib import Path; "
            code += f"run_study(toy_study.CONFIG, work_dir=Path({str(tmp_path)!r}), engine=toy_study.ENGINE)"
            ended = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=False)
            refusals.append(ended.stderr)

    result = run_study(CONFIG, work_dir=tmp_path, engine=ENGINE, on_progress=start_again)
    assert result.is_complete
    assert "another process runs the study" in refusals[0]


def _kill_and_resume(work_dir: Path, delays: list[float], *, jobs: int) -> int:
    """Run the toy study in a process of its own, killed after each delay; then to its end. Returns the kills."""
    code = "import sys, toy_study; from pathlib import Path; toy_study.run_slowly(Path(sys.argv[1]), int(sys.argv[2]))"
    command = [sys.executable, "-c", code, str(work_dir), str(jobs)]
    kills = 0
    for delay in delays:
        process = subprocess.Popen(command, cwd=HERE, stderr=subprocess.PIPE, start_new_session=True)
        # The clock starts when the study does: imports are no part of it.
        assert process.stderr is not None
        process.stderr.readline()
        time.sleep(delay)
        is_running = process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        kills += is_running
        if not is_running:
            break
    return kills


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_again_and_again_it_ends_with_the_same_table(
    undisturbed: list[object], tmp_path: Path, jobs: int
) -> None:
    assert _kill_and_resume(tmp_path, [0.05, 0.2], jobs=jobs) >= 1
    assert table(run_study(CONFIG, work_dir=tmp_path, engine=ENGINE, is_resumed=True)) == undisturbed


def test_a_disk_that_is_full_is_one_sentence_and_the_study_goes_on_later(
    undisturbed: list[object], tmp_path: Path
) -> None:
    """A limit on the size of files stands for the disk: a write is cut short there, in the middle of a line."""
    code = """
import resource, sys, toy_study
from pathlib import Path
from types import ModuleType
from phaze_opt.errors import InputError
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))
try:
    toy_study.run_study(toy_study.CONFIG, work_dir=Path(sys.argv[1]), engine=toy_study.ENGINE)
except InputError as error:
    print(error)
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    told = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True).stdout
    assert "cannot be written: File too large" in told
    assert len(told.splitlines()) == 1
    sizes = [path.stat().st_size for path in tmp_path.glob("phaze-opt-studies/*/evaluations/*.jsonl")]
    assert max(sizes) == 30_000
    assert table(run_study(CONFIG, work_dir=tmp_path, engine=ENGINE, is_resumed=True)) == undisturbed


@pytest.mark.slow
def test_killed_at_twenty_random_moments_it_ends_with_the_same_table(undisturbed: list[object], tmp_path: Path) -> None:
    import random

    rng = random.Random(4)
    for number, jobs in zip(range(20), itertools.cycle((1, 2)), strict=False):
        work_dir = tmp_path / str(number)
        _kill_and_resume(work_dir, [rng.uniform(0.0, 0.8) for _ in range(1)], jobs=jobs)
        assert table(run_study(CONFIG, work_dir=work_dir, engine=ENGINE, is_resumed=True)) == undisturbed


class _Broken:
    def observe(self, event: StudyEvent) -> None:
        raise RuntimeError(str(event)[:10])


class _Counting:
    """Objectives that note what they evaluate."""

    def __init__(self) -> None:
        self.points: list[tuple[str, DesignPoint]] = []

    def __call__(self, condition: object) -> object:
        inner = build_toy(condition)
        points = self.points
        name = condition.workload.name

        class Noting:
            def evaluate(self, point: DesignPoint) -> Evaluation:
                points.append((name, point))
                return inner.evaluate(point)

        return Noting()


def _refuse(condition: object) -> object:
    raise AssertionError(f"nothing is evaluated again, but an objective was asked for {condition}")
