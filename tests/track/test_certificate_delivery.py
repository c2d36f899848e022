"""A proof in MLflow: one run with curves, artifacts, and nothing twice when it is resumed."""

from pathlib import Path

import pytest
from kits.recorded_store import AT_THE_END, rows

from phaze_opt.certify import events
from phaze_opt.certify.certificate import Claim
from phaze_opt.certify.result import CertifyStage, ProofMove
from phaze_opt.errors import PluginError, TrackingError
from phaze_opt.testing.problems import tiny_space
from phaze_opt.track import mlflow, protocol
from phaze_opt.track.mlflow import MLflowTracker
from phaze_opt.track.protocol import NullTracker

CONFIG = {"goal": "throughput", "tolerance": 0.001, "problem_digest": "d" * 64, "scenario": {"global_batch": 64}}
STARTED = events.ProofStarted("certify-0123456789abcdef", "certify tiny on 16", CONFIG)
CLAIM = Claim(True, 3, tiny_space().point(3), 100.0, 100.05, 100.0, 0.0005, 0.001, True, 920, 12)
FINISHED = events.ProofFinished(CLAIM, None, 2.5, {"ilp_solves": 7.0}, {"statement": "Proved.", "file": "somewhere"})


def moved(solved: int, value: float, upper: float) -> events.ProofMoved:
    return events.ProofMoved(ProofMove(CertifyStage.CLOSING, 920, 920, solved, 5, value, upper, 0.1 * solved))


MOVES = (moved(0, 0.0, 150.0), moved(1, 90.0, 150.0), moved(2, 90.0, 150.0), moved(3, 100.0, 100.05))


@pytest.fixture
def work_dir(work_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(mlflow, "PAUSE_S", 0.0)
    return work_dir


def record(work_dir: Path, *events: object, files: dict[str, Path] | None = None) -> protocol.TrackingSession:
    session = AT_THE_END.open_certificate(protocol.TrackerConfig(work_dir=work_dir))
    for event in events:
        session.observe(event)
    session.log_artifacts(files or {})
    delivery = session.close()
    assert delivery.is_complete, delivery.reason
    return session


def curve(work_dir: Path, name: str) -> list[tuple[int, float]]:
    return rows(work_dir, f"select step, value from metrics where key = '{name}' order by step")


def test_one_run_says_it_all(work_dir: Path) -> None:
    (work_dir / "certificate.json").write_text("{}")
    session = record(work_dir, STARTED, *MOVES, FINISHED, files={"certificate.json": work_dir / "certificate.json"})
    ((run_id, name, status),) = rows(work_dir, "select run_uuid, name, status from runs")
    assert (run_id, name, status) == (session.run_id, "certify tiny on 16", "FINISHED")
    params = dict(rows(work_dir, "select key, value from params"))
    assert params["tolerance"] == "0.001"
    assert params["global_batch"] == "64"
    tags = dict(rows(work_dir, "select key, value from tags"))
    assert tags["problem_digest"] == "d" * 64
    assert (tags["is_proved"], tags["is_interrupted"], tags["mlflow.note.content"]) == ("true", "false", "Proved.")
    latest = dict(rows(work_dir, "select key, value from latest_metrics"))
    expected = {"incumbent": 100.0, "upper_bound": 100.05, "gap": 0.0005, "num_solved": 12.0, "ilp_solves": 7.0}
    expected |= {"num_points": 920.0, "num_bounded": 920.0, "wall_s": 2.5}
    assert {name: latest[name] for name in expected} == expected
    assert {path.name for path in work_dir.rglob("artifacts/*.json")} >= {"certificate.json", "config.json"}


def test_the_curves_have_a_step_a_move(work_dir: Path) -> None:
    record(work_dir, STARTED, *MOVES, FINISHED)
    assert curve(work_dir, "upper_bound") == [(0, 150.0), (1, 150.0), (2, 100.05), (3, 100.05)]
    # Nothing was attained at first, and a report in which nothing moved is none.
    assert curve(work_dir, "incumbent") == [(1, 90.0), (2, 100.0), (3, 100.0)]


def test_moves_in_quick_succession_are_one(work_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow, "PAUSE_S", 3600.0)
    record(work_dir, STARTED, *(moved(n, 50.0 + n, 200.0 - n) for n in range(1, 50)), FINISHED)
    assert curve(work_dir, "upper_bound") == [(0, 199.0), (1, 151.0), (2, 100.05)]


def test_a_resumed_proof_goes_on_in_its_run(work_dir: Path) -> None:
    record(work_dir, STARTED, *MOVES[:2], events.ProofFinished(None, None, 1.0))
    assert rows(work_dir, "select status from runs") == [("KILLED",)]
    again = events.ProofStarted(STARTED.proof_id, STARTED.name, {**CONFIG, "tolerance": 0.01}, is_resumed=True)
    record(work_dir, again, *MOVES[2:], FINISHED)
    assert rows(work_dir, "select status from runs") == [("FINISHED",)]
    assert [step for step, _ in curve(work_dir, "upper_bound")] == [0, 1, 2, 3, 4]
    assert dict(rows(work_dir, "select key, value from tags"))["resumed.tolerance"] == "0.01"
    record(work_dir, STARTED, *MOVES, FINISHED)
    assert len(rows(work_dir, "select run_uuid from runs")) == 2


def test_a_proof_that_was_cut_short_is_closed_when_it_begins_anew(work_dir: Path) -> None:
    record(work_dir, STARTED, *MOVES[:2])
    record(work_dir, STARTED, *MOVES, FINISHED)
    assert rows(work_dir, "select status from runs order by start_time") == [("KILLED",), ("FINISHED",)]
    assert [path.name for path in work_dir.glob("phaze-opt-runs/*/")] == [STARTED.proof_id]


def test_events_out_of_order_are_refused(work_dir: Path) -> None:
    session = AT_THE_END.open_certificate(protocol.TrackerConfig(work_dir=work_dir))
    with pytest.raises(TrackingError):
        session.observe(MOVES[0])
    session.observe(STARTED)
    with pytest.raises(TrackingError, match="one thing"):
        session.observe(STARTED)
    session.close()


def test_both_trackers_record_proofs() -> None:
    for tracker in (MLflowTracker(), NullTracker()):
        assert isinstance(tracker, protocol.CertificateTracker)
    session = NullTracker().open_certificate(protocol.TrackerConfig())
    assert isinstance(session, protocol.TrackingSession)
    session.observe(STARTED)
    assert session.num_events == 1


def test_a_failing_session_is_silenced(caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        def observe(self, event: object) -> None:
            raise ValueError("full")

        def close(self, on_progress: object = None) -> object:
            raise ValueError("gone")

    session = protocol.GuardedSession(Failing(), name="failing", what="proof")
    session.observe(STARTED)
    session.observe(MOVES[0])
    delivery = session.close()
    assert delivery.num_pending == 2
    assert "proof goes on without it" in caplog.text


def test_a_tracker_of_searches_only_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class SearchesOnly:
        name = "searches"

        def open(self, config: protocol.TrackerConfig) -> object:
            return object()

    monkeypatch.setattr(protocol, "load_plugin", lambda *_: SearchesOnly())
    with pytest.raises(PluginError, match="records no proofs"):
        protocol.open_tracker("searches", protocol.TrackerConfig(), "proof")
