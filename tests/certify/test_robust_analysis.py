"""The whole analysis on a toy prover: against a table of every point in every world, resumed, with several jobs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from robust_toys import PowerProver, make_problem, make_space
from small_problems import flip_a_bit, tear

from phaze_opt.certify.finished_tasks import JOURNAL_FILE
from phaze_opt.certify.problem import CertifyOptions
from phaze_opt.certify.prove import BUSY, lock_file
from phaze_opt.certify.robust.analyse import analyse_robustness, read_result, result_file
from phaze_opt.certify.robust.conclude import WITHIN
from phaze_opt.certify.robust.result import ConclusionKind, RobustDesign, RobustOptions, RobustResult, RobustStage
from phaze_opt.certify.robust.worlds import AssumptionGroup, WorldKind
from phaze_opt.errors import InputError
from phaze_opt.record.arrays import Floats
from phaze_opt.record.checkpoint import open_checkpoint
from phaze_opt.record.lock import locked
from phaze_opt.record.progress import Progress

PROBLEM = make_problem()
ROBUST = RobustOptions(num_samples=3, seed=4)


def _analyse(directory: Path, prover: PowerProver, **changes: object) -> RobustResult:
    options = CertifyOptions(**({"tolerance": 0.0, "num_best": 3, "directory": directory} | changes))  # type: ignore[arg-type]
    return analyse_robustness(PROBLEM, options, ROBUST, prover=prover)


Whole = Callable[[int], tuple[RobustResult, PowerProver]]


@pytest.fixture(scope="module", name="whole")
def _whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """An analysis that nothing disturbs, by the seed of its toy, and the toy; made once."""

    @cache
    def make(seed: int) -> tuple[RobustResult, PowerProver]:
        prover = PowerProver(PROBLEM.space.size, seed)
        return _analyse(tmp_path_factory.mktemp("whole"), prover), prover

    return make


def _table(prover: PowerProver, result: RobustResult) -> Floats:
    """Every point in every world."""
    return np.array([prover.values(world.settings) for world in result.worlds])


def _timeless(result: RobustResult) -> RobustResult:
    return replace(result, wall_s=0.0)


@pytest.mark.parametrize("seed", range(5))
def test_equals_brute_force(whole: Whole, seed: int) -> None:
    result, prover = whole(seed)
    table = _table(prover, result)
    best = table.max(axis=1)
    assert len(result.worlds) == 1 + 2**4 + len(result.assumptions.alternatives) + 3
    assert [optimum.index for optimum in result.optima] == table.argmax(axis=1).tolist()
    assert [optimum.value for optimum in result.optima] == best.tolist()
    regrets = 1.0 - table / best[:, None]
    for design in result.designs:
        if design.index >= 0:
            assert design.values == tuple(table[:, design.index])
            assert design.regrets == pytest.approx(tuple(regrets[:, design.index]), abs=1e-15)
            assert min(design.regrets) >= 0.0
            assert design.worst_regret == max(design.regrets) == design.regrets[design.worst_world]
    worst = regrets.max(axis=0)
    assert result.minimax.index == int(worst.argmin())
    assert result.minimax.regret == pytest.approx(worst.min(), abs=1e-15)
    assert result.minimax.is_proved
    assert result.minimax.num_evaluations < table.size
    good = {design.index for design in result.designs if design.index >= 0}
    assert good == {*table.argmax(axis=1).tolist(), *np.argsort(-table[0])[:3].tolist(), result.minimax.index}


def test_conclusions_follow_from_the_table(whole: Whole) -> None:
    result, prover = whole(1)
    table = _table(prover, result)
    nominal = int(table[0].argmax())
    regrets = 1.0 - table[:, nominal] / table.max(axis=1)
    within = [c for c in result.conclusions if c.kind is ConclusionKind.NOMINAL_BEST]
    for conclusion, share in zip(within, WITHIN, strict=True):
        assert conclusion.share == (regrets <= share).mean()
        assert conclusion.worst_world == int(regrets.argmax())
        assert conclusion.holds[0]
    ratios = [c for c in result.conclusions if c.statement == "the nominal best design beats phaze-tpu-v4"]
    assert ratios[0].found == pytest.approx(tuple(table[:, nominal] / (0.5 * table.mean(axis=1))))


def test_what_keeping_a_parameter_costs(whole: Whole) -> None:
    """The best of all points with the nominal best design's width, in every world, by hand."""
    result, prover = whole(1)
    table = _table(prover, result)
    shapes = [c for c in result.conclusions if c.kind is ConclusionKind.SHAPE]
    assert len(shapes) == 4, "an axis with one value has nothing to conclude"
    width = next(c for c in shapes if "an array width of" in c.statement)
    widths = np.array([PROBLEM.space.point(index).tc_width for index in range(PROBLEM.space.size)])
    kept = widths == widths[table[0].argmax()]
    true_costs = 1.0 - table[:, kept].max(axis=1) / table.max(axis=1)
    for held, cost, found, is_proved in zip(width.holds, true_costs, width.found, width.is_proved, strict=True):
        assert isinstance(found, float)
        assert found >= cost - 1e-15
        assert not is_proved or held == (cost <= 1e-8)
    assert width.holds[0]
    assert any(width.is_proved)


def test_effects_are_of_one_group_alone(whole: Whole) -> None:
    """Two corners that differ in one group: the mean of their log-ratios by hand."""
    result, _ = whole(2)
    values = {world.ends: o.value for world, o in zip(result.worlds, result.optima, strict=True) if world.ends}
    for position, effect in enumerate(result.effects):
        logs = [
            np.log(value / values[(*ends[:position], type(ends[0]).LOW, *ends[position + 1 :])])
            for ends, value in values.items()
            if ends[position] == "high"
        ]
        assert effect.group is result.assumptions.groups[position].group
        assert effect.num_pairs == len(logs) == 8
        assert effect.mean_log_ratio == pytest.approx(np.mean(logs))
        assert effect.least_log_ratio == pytest.approx(min(logs))
        assert effect.largest_log_ratio == pytest.approx(max(logs))
        assert 0.0 <= effect.share_shared <= 1.0


def test_the_file_holds_the_result(tmp_path: Path) -> None:
    result = _analyse(tmp_path, PowerProver(PROBLEM.space.size))
    path = result_file(PROBLEM, CertifyOptions(directory=tmp_path))
    assert read_result(path) == result
    assert [entry.name for entry in path.parent.iterdir()] == [path.name], "nothing of the journal is left"
    assert {world.problem_digest for world in result.worlds[:1]} == {PROBLEM.digest}
    path.write_text(path.read_text().replace('"value": ', '"value": 1', 1))
    with pytest.raises(InputError, match=path.name):
        read_result(path)


@pytest.mark.parametrize("fail_after", [2, 20, *(pytest.param(each, marks=pytest.mark.slow) for each in (21, 35)), 60])
def test_an_interruption_changes_nothing_and_costs_one_piece(tmp_path: Path, whole: Whole, fail_after: int) -> None:
    expected, undisturbed = whole(3)
    with pytest.raises(KeyboardInterrupt):
        _analyse(tmp_path / "cut", PowerProver(PROBLEM.space.size, 3, fail_after=fail_after))
    again = PowerProver(PROBLEM.space.size, 3)
    found = _analyse(tmp_path / "cut", again, is_resumed=True)
    assert _timeless(found) == _timeless(expected)
    assert len(again.calls) == len(undisturbed.calls) - (fail_after - 1)


def test_a_finished_analysis_is_read_back_if_it_is_the_one_asked_for(tmp_path: Path) -> None:
    first = _analyse(tmp_path, PowerProver(PROBLEM.space.size))
    idle, other = PowerProver(PROBLEM.space.size), PowerProver(PROBLEM.space.size)
    assert _analyse(tmp_path, idle, is_resumed=True) == first
    assert idle.calls == []
    _analyse(tmp_path, other, is_resumed=True, tolerance=0.01)
    assert other.calls != []


def test_two_analyses_of_one_problem_do_not_share_a_journal(tmp_path: Path) -> None:
    place = result_file(PROBLEM, CertifyOptions(directory=tmp_path)).parent
    with locked(lock_file(place), busy=BUSY), pytest.raises(InputError, match="another process"):
        _analyse(tmp_path, PowerProver(PROBLEM.space.size))


def test_without_resume_it_starts_afresh(tmp_path: Path, whole: Whole) -> None:
    with pytest.raises(KeyboardInterrupt):
        _analyse(tmp_path, PowerProver(PROBLEM.space.size, fail_after=10))
    again = PowerProver(PROBLEM.space.size)
    _analyse(tmp_path, again)
    assert again.calls == whole(0)[1].calls


def test_what_follows_a_torn_line_can_be_read(tmp_path: Path) -> None:
    def session(*numbers: int) -> list[object]:
        """What a session finds, before it keeps some numbers."""
        pieces = open_checkpoint(tmp_path / JOURNAL_FILE, header={"of": "numbers"}, is_resumed=True, what="it")
        found = [line["number"] for line in pieces.lines if "number" in line]
        for number in numbers:
            pieces.keep({"number": number})
        pieces.close()
        return found

    assert session(1, 2) == []
    tear(tmp_path / JOURNAL_FILE)
    assert session(3) == [1]
    assert session() == [1, 3]


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        _analyse(tmp_path / "file", PowerProver(PROBLEM.space.size))


def changed(path: Path) -> None:
    """A digit in the middle."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[len(lines) // 2] = lines[len(lines) // 2].replace(b"1", b"2", 1)
    path.write_bytes(b"".join(lines))


@pytest.mark.parametrize(
    ("name", "spoil", "num_lost"),
    [(JOURNAL_FILE, tear, 1), (JOURNAL_FILE, changed, 1), ("world-*.npz", flip_a_bit, 1), ("world-*.npz", tear, 1)],
)
def test_a_spoilt_piece_costs_that_piece(
    tmp_path: Path,
    whole: Whole,
    name: str,
    spoil: Callable[[Path], None],
    num_lost: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected, undisturbed = whole(0)
    with pytest.raises(KeyboardInterrupt):
        _analyse(tmp_path / "cut", PowerProver(PROBLEM.space.size, fail_after=40))
    spoil(next(iter(sorted((tmp_path / "cut").rglob(name)))))
    again = PowerProver(PROBLEM.space.size)
    assert _timeless(_analyse(tmp_path / "cut", again, is_resumed=True)) == _timeless(expected)
    assert len(again.calls) == len(undisturbed.calls) - 39 + num_lost
    assert "again" in caplog.text


def test_jobs_change_no_number(tmp_path: Path, whole: Whole) -> None:
    two = _analyse(tmp_path, PowerProver(PROBLEM.space.size, 3), jobs=2)
    assert _timeless(two) == _timeless(whole(3)[0])


def test_progress_tells_every_stage(tmp_path: Path) -> None:
    seen: list[Progress] = []
    options = CertifyOptions(directory=tmp_path)
    prover = PowerProver(PROBLEM.space.size)
    result = analyse_robustness(PROBLEM, options, ROBUST, prover=prover, on_progress=seen.append)
    assert [entry.num_done for entry in seen[:20]] == list(range(1, 21))
    assert {entry.phase for entry in seen} == {RobustStage.WORLDS, RobustStage.DESIGNS, RobustStage.MINIMAX}
    assert f"largest regret {100.0 * result.minimax.regret:.2f} %" in seen[-1].what


class _Infeasible(PowerProver):
    """Some worlds have no feasible point."""

    def values(self, settings: Sequence[object]) -> Floats:
        return np.zeros(self.size)


def test_a_space_without_a_feasible_point(tmp_path: Path) -> None:
    result = _analyse(tmp_path, _Infeasible(PROBLEM.space.size))
    assert not any(optimum.is_feasible for optimum in result.optima)
    assert result.minimax.point is None
    assert result.conclusions == ()
    assert result.effects == ()


def test_nothing_uncertain_leaves_choices_alone(tmp_path: Path) -> None:
    problem = make_problem(make_space(tc_width=(32,)), varied=("nothing",))
    prover = PowerProver(problem.space.size)
    result = analyse_robustness(problem, CertifyOptions(directory=tmp_path), ROBUST, prover=prover)
    kinds = [WorldKind.NOMINAL, *(WorldKind.OPTION for _ in result.assumptions.alternatives)]
    assert [world.kind for world in result.worlds] == kinds
    assert result.minimax.regret == 0.0
    assert len(result.assumptions.left_out) == len(AssumptionGroup)


def test_every_good_design_says_why(whole: Whole) -> None:
    result, _ = whole(1)

    def by_role(role: str) -> RobustDesign:
        return next(design for design in result.designs if role in design.roles)

    assert by_role("min-max regret").index == result.minimax.index
    assert by_role("nominal rank 1").index == result.optima[0].index
    for world, optimum in zip(result.worlds[1:], result.optima[1:], strict=True):
        assert by_role(f"best in {world.name}").index == optimum.index
    assert [design.name for design in result.designs if "reference" in design.roles] == [
        "phaze-tpu-v4",
        "modelled tpu-v4",
    ]
