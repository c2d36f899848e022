"""Delivery to MLflow: what the store shows, and that trouble half-way is repaired without logging anything twice."""

import os
import shutil
import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from kits.planted import plant
from kits.recorded_store import AT_THE_END, FlakyClient, deliver_all, rows, tell

from phaze_opt.errors import InputError, TrackingError
from phaze_opt.record.journal import format_line, parse_line
from phaze_opt.record.lock import locked
from phaze_opt.search.events import SearchStarted, TrialFinished
from phaze_opt.testing.events import example_search, record_search
from phaze_opt.testing.trackers import expected, resumed
from phaze_opt.track import deliver, runs, store
from phaze_opt.track.deliver import open_clock
from phaze_opt.track.destination import Destination, default_uri
from phaze_opt.track.mlflow import MLflowTracker
from phaze_opt.track.pending_delivery import OrderFile, list_orders
from phaze_opt.track.protocol import Delivery, TrackerConfig
from phaze_opt.track.sources import count_pending, num_pending
from phaze_opt.track.store import quiet_mlflow

pytestmark = pytest.mark.usefixtures("undrawn")

NUM_TRIALS = 12
EVENTS = example_search(NUM_TRIALS)
NUM_LINES = NUM_TRIALS + 1
NUM_PENDING = NUM_LINES + 4  # the ends of the run, config.json and best.json


def record(work_dir: Path, events=EVENTS, *, uri: str = "") -> Delivery:
    is_resumed = any(isinstance(event, TrialFinished) and event.trial.is_resumed for event in events)
    return tell(work_dir, events, uri, is_resumed=is_resumed).close()


def trial_numbers(work_dir: Path) -> list[int]:
    query = "select cast(value as integer) from tags where key = 'phaze_opt.trial' order by 1"
    return [number for (number,) in rows(work_dir, query)]


def test_the_store_has_a_parent_its_children_curves_and_artifacts(work_dir: Path) -> None:
    assert record(work_dir) == Delivery(num_delivered=NUM_LINES)
    assert trial_numbers(work_dir) == list(range(NUM_TRIALS))
    assert rows(work_dir, "select count(*) from runs where status = 'FINISHED'") == [(NUM_TRIALS + 1,)]
    parents = rows(work_dir, "select distinct value from tags where key = 'mlflow.parentRunId'")
    searches = rows(work_dir, "select run_uuid from tags where key = 'phaze_opt.role' and value = 'search'")
    assert parents == searches
    for key in ("phaze_opt.search_id", "mlflow.source.name"):  # of the search and of every trial
        (count,) = rows(work_dir, f"select count(*), min(value) = max(value) from tags where key = '{key}'")
        assert count == (NUM_TRIALS + 1, 1)
    curve = rows(work_dir, "select value from metrics where key = 'best_throughput_samples_per_s' order by step")
    values = [value for (value,) in curve]
    assert values == sorted(values)
    assert values[-1] == max(expected(EVENTS).values())
    artifacts = {path.name for path in (work_dir / "mlartifacts" / searches[0][0] / "artifacts").iterdir()}
    assert artifacts == {"config.json", "best.json"}
    (place,) = list_orders(work_dir)
    assert [path.name for path in place.directory.rglob("*.jsonl")] == ["trials.jsonl"]
    # What tracking adds is about the run, not about its trials.
    assert b"num_tc" not in place.path.read_bytes()


@pytest.mark.parametrize("failing_call", [3, 36])
def test_failure_at_any_call_is_repaired_by_the_next_delivery(
    failing_call: int, work_dir: Path, destination: Destination, monkeypatch
) -> None:
    real = store.open_client
    monkeypatch.setattr(store, "open_client", lambda where: FlakyClient(real(where), failing_call))
    delivery = record(work_dir)
    assert not delivery.is_complete
    assert "stood in the way" in delivery.reason
    assert "phaze-opt ui" in delivery.reason
    monkeypatch.setattr(store, "open_client", real)
    assert deliver_all(destination) == 0
    assert trial_numbers(work_dir) == list(range(NUM_TRIALS))
    history = "select count(*), count(distinct step) from metrics where key = 'num_trials_finished'"
    assert rows(work_dir, history) == [(NUM_TRIALS, NUM_TRIALS)]
    assert rows(work_dir, "select count(*) from runs where status != 'FINISHED'") == [(0,)]


def test_a_second_delivery_finds_nothing_to_do(work_dir: Path, destination: Destination, monkeypatch) -> None:
    record(work_dir)
    (place,) = list_orders(work_dir)
    before = rows(work_dir, "select count(*) from metrics")
    assert num_pending(place, destination.shown) == 0
    monkeypatch.setattr(store, "open_client", None)
    assert deliver_all(destination, place=place) == 0
    assert rows(work_dir, "select count(*) from metrics") == before


def test_what_the_store_has_is_known_from_the_store(work_dir: Path, destination: Destination) -> None:
    record(work_dir)
    (place,) = list_orders(work_dir)
    tables = ("runs", "metrics", "params", "tags")
    before = [rows(work_dir, f"select count(*) from {table}") for table in tables]
    (place.directory / "tracking.state.json").unlink()
    assert num_pending(place, destination.shown) > NUM_TRIALS
    assert deliver_all(destination) == 0
    assert [rows(work_dir, f"select count(*) from {table}") for table in tables] == before


def test_a_record_that_another_process_delivers_is_left_to_it(work_dir: Path, destination: Destination) -> None:
    session = tell(work_dir, EVENTS)
    (place,) = list_orders(work_dir)
    with locked(place.lock, busy=""):
        deliver_all(destination, place=place)
        assert not session.close().is_complete
        assert trial_numbers(work_dir) == []
    assert deliver_all(destination) == 0
    assert trial_numbers(work_dir) == list(range(NUM_TRIALS))


def test_a_folder_of_any_name_holds_a_store(tmp_path: Path, empty_store: Path) -> None:
    work_dir = tmp_path / "a.py:B x%20y#z?ü&+"
    work_dir.mkdir()
    shutil.copyfile(empty_store, work_dir / "mlflow.db")
    assert tell(work_dir, EVENTS[:2]).close().is_complete
    assert rows(work_dir, "select count(*) from runs") == [(2,)]
    assert [path.name for path in work_dir.rglob("artifacts/config.json")] == ["config.json"]
    assert list(tmp_path.iterdir()) == [work_dir]


def test_a_torn_line_costs_that_line(work_dir: Path) -> None:
    session = AT_THE_END.open(TrackerConfig(work_dir=work_dir))
    events = record_search(work_dir, EVENTS)
    path = OrderFile(events[0].directory).directory / "trials.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], lines[4][:50] + b"\n", *lines[5:]]))
    for event in events:
        session.observe(event)
    assert session.close().is_complete
    assert trial_numbers(work_dir) == [number for number in range(NUM_TRIALS) if number != 3]


def test_a_record_that_waits_runs_no_code(work_dir: Path, destination: Destination) -> None:
    planted = plant(work_dir)
    tell(work_dir, example_search(2))
    (place,) = list_orders(work_dir)
    for path in (place.path, place.directory / "trials.jsonl"):
        lines = [planted.named_in(parse_line(line)) for line in path.read_bytes().splitlines()]
        path.write_text("".join(map(format_line, lines)))
    assert deliver_all(destination) == 0
    assert trial_numbers(work_dir) == [0, 1]
    assert not planted.has_run


def test_a_rerun_is_a_run_of_its_own_and_a_resumed_search_is_not(work_dir: Path) -> None:
    searches = "select count(*) from tags where key = 'phaze_opt.role' and value = 'search'"
    record(work_dir, EVENTS[:6])
    record(work_dir, resumed(EVENTS, num_known=5))
    assert rows(work_dir, searches) == [(1,)]
    assert trial_numbers(work_dir) == list(range(NUM_TRIALS))
    record(work_dir, EVENTS[:6])
    assert rows(work_dir, searches) == [(2,)]


@pytest.mark.parametrize(
    ("num_events", "failing_call"), [(1, 1), pytest.param(6, 25, marks=pytest.mark.slow), (NUM_LINES + 1, 36)]
)
def test_what_a_search_left_undelivered_is_delivered_when_it_begins_anew(
    num_events: int, failing_call: int, work_dir: Path, monkeypatch
) -> None:
    """Killed before the first trial or later, or ended; of a store that was away, or lost in the middle."""
    real = store.open_client
    monkeypatch.setattr(deliver, "SLICE_S", 0.0)
    monkeypatch.setattr(store, "open_client", lambda where: FlakyClient(real(where), failing_call))
    assert not record(work_dir, EVENTS[:num_events]).is_complete
    monkeypatch.setattr(store, "open_client", real)
    assert record(work_dir, EVENTS[:3]).is_complete
    is_whole = num_events == NUM_LINES + 1
    roles = "select status from runs join tags using (run_uuid) where key = 'phaze_opt.role' and value = 'search'"
    assert sorted(rows(work_dir, roles)) == [("FINISHED" if is_whole else "KILLED",), ("RUNNING",)]
    num_trials = num_events - 1 - is_whole + 2
    assert len(trial_numbers(work_dir)) == num_trials
    assert rows(work_dir, "select count(*) from runs where status = 'FINISHED'") == [(num_trials + is_whole,)]
    assert [place.directory.name for place in list_orders(work_dir)] == ["example-0001"], "what is delivered is removed"


def test_a_slow_store_keeps_what_it_has_got(work_dir: Path, destination: Destination, monkeypatch) -> None:
    """However slow it is, the next delivery goes on where this one was ended."""
    monkeypatch.setattr(deliver, "SLICE_S", 0.0)
    real = store.open_client
    session = tell(work_dir, EVENTS)
    (place,) = list_orders(work_dir)
    for failing_call in (14, 18, 22):
        monkeypatch.setattr(store, "open_client", lambda where, call=failing_call: FlakyClient(real(where), call))
        deliver_all(destination, place=place)
    order = place.read()
    assert order is not None
    assert place.state(order).num_done > 2
    monkeypatch.setattr(store, "open_client", real)
    assert session.close().is_complete


def test_a_longer_search_continues_a_shorter_one_with_its_new_params_as_tags(work_dir: Path) -> None:
    record(work_dir, example_search(5))
    record(work_dir, resumed(EVENTS, num_known=5))
    assert rows(work_dir, "select value from params where key = 'num_trials'") == [("5",)]
    assert rows(work_dir, "select value from tags where key = 'resumed.num_trials'") == [(str(NUM_TRIALS),)]
    assert trial_numbers(work_dir) == list(range(NUM_TRIALS))


def test_a_run_deleted_in_the_store_comes_back_whole_when_its_search_goes_on(work_dir: Path) -> None:
    record(work_dir, EVENTS[:6])
    rows(work_dir, "update runs set lifecycle_stage = 'deleted'")
    record(work_dir, resumed(EVENTS, num_known=5))
    alive = "select count(*) from runs where lifecycle_stage = 'active'"
    assert rows(work_dir, alive) == [(NUM_TRIALS + 1,)]


def refuse(where):
    message = "no server"
    raise ConnectionError(message)


def test_a_record_for_another_store_is_not_delivered_here(
    work_dir: Path, destination: Destination, monkeypatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(store, "open_client", refuse)
        delivery = record(work_dir, uri="http://me:secret@elsewhere:5000")
    assert delivery.num_pending == NUM_PENDING
    assert "secret" not in delivery.reason
    (place,) = list_orders(work_dir)
    assert b"secret" not in b"".join(path.read_bytes() for path in place.directory.rglob("*") if path.is_file())
    assert num_pending(place, destination.shown) == 0
    assert deliver_all(destination) == 0
    assert trial_numbers(work_dir) == []


def test_a_deleted_experiment_is_said_in_one_sentence(work_dir: Path) -> None:
    record(work_dir, EVENTS[:3])
    rows(work_dir, "update experiments set lifecycle_stage = 'deleted' where name = 'phaze-opt'")
    delivery = record(work_dir)
    assert delivery.num_pending == NUM_PENDING
    assert "\n" not in delivery.reason


def test_more_params_than_one_batch_takes(work_dir: Path) -> None:
    config = {f"key {number} (odd)": number for number in range(2 * runs.MAX_PARAMS_OR_TAGS + 5)}
    started = SearchStarted("many", "many", "tpe", "throughput", 0, 1, config)
    record(work_dir, (started, *(event for event in EVENTS[1:3] if isinstance(event, TrialFinished))))
    assert rows(work_dir, "select count(*) from params where key like 'key%'") == [(len(config),)]


def test_misuse_is_told_and_unwritable_directories_are_refused(tmp_path: Path, work_dir: Path) -> None:
    session = AT_THE_END.open(TrackerConfig(work_dir=tmp_path))
    with pytest.raises(TrackingError, match="before the start"):
        session.observe(EVENTS[1])
    with pytest.raises(TrackingError, match="no directory"):
        session.observe(EVENTS[0])
    events = record_search(work_dir, EVENTS[:3])
    for event in events:
        session.observe(event)
    with pytest.raises(TrackingError, match="relative name"):
        session.log_artifacts({"../escape.txt": tmp_path / "mlflow.db"})
    with pytest.raises(TrackingError, match="one thing"):
        session.observe(events[0])
    assert session.close().is_complete
    with pytest.raises(TrackingError, match="closed"):
        session.observe(EVENTS[-1])
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        MLflowTracker().open(TrackerConfig(work_dir=tmp_path / "file" / "below"))


def test_an_experiment_that_another_process_makes_first_is_used(work_dir: Path, monkeypatch) -> None:
    real = store.open_client
    monkeypatch.setattr(store, "open_client", lambda where: FlakyClient(real(where), 2))  # create_experiment
    assert record(work_dir, EVENTS[:2]).is_complete
    assert rows(work_dir, "select count(*) from experiments where name = 'phaze-opt'") == [(1,)]


def test_copies_of_artifacts_are_kept_until_the_store_has_them(work_dir: Path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(store, "open_client", refuse)
        record(work_dir)
    (place,) = list_orders(work_dir)
    assert set(place.waiting_files()) == {"config.json", "best.json"}
    deliver_all(Destination(default_uri(work_dir), work_dir))
    assert place.waiting_files() == {}
    assert {path.name for path in (work_dir / "mlartifacts").rglob("*.json")} == {"config.json", "best.json"}


def link_parts(mine: Path, place: OrderFile) -> None:
    """Links in the folder of copies, and one to a record elsewhere."""
    (mine / "tracking-files").mkdir()
    shutil.copy(mine / "a.txt", mine / "tracking-files")
    shutil.copy(place.path, mine)
    (place.directory.parent / "theirs.1").symlink_to(mine)
    (place.files / "folder").symlink_to(mine)
    (place.files / "a.txt").symlink_to(mine / "a.txt")
    (place.files / "b.txt").hardlink_to(mine / "a.txt")


def link_whole(mine: Path, place: OrderFile) -> None:
    """The folder of copies is a link."""
    shutil.rmtree(place.files)
    place.files.symlink_to(mine)


@pytest.mark.parametrize("link", [link_parts, link_whole])
def test_no_link_is_followed_to_what_is_somebody_elses(
    link, tmp_path_factory: pytest.TempPathFactory, work_dir: Path, destination: Destination
) -> None:
    mine = tmp_path_factory.mktemp("precious")
    (mine / "a.txt").write_text("precious")
    session = tell(work_dir, example_search(2))
    (place,) = list_orders(work_dir)
    link(mine, place)
    before = {path: path.is_dir() or path.read_bytes() for path in mine.rglob("*")}
    assert session.close().is_complete
    assert {path: path.is_dir() or path.read_bytes() for path in mine.rglob("*")} == before
    assert not {path.name for path in (work_dir / "mlartifacts").rglob("*.txt")}
    with pytest.raises(InputError, match="is a link to another folder") if link is link_whole else nullcontext():
        tell(work_dir, example_search(2), is_resumed=True)
    assert {path: path.is_dir() or path.read_bytes() for path in mine.rglob("*")} == before


def test_a_broken_record_is_said_and_stops_no_other(
    work_dir: Path, destination: Destination, caplog: pytest.LogCaptureFixture
) -> None:
    started = {"kind": "started", "time_ms": 1, "target": destination.shown}
    broken = {
        "another value": "[]",
        "no start": format_line({"attempt": "x"}),
        "no time": format_line({"attempt": "x", "started": {"kind": "started"}}),
        "a record without end": format_line({"attempt": "x", "started": started}),
        "no experiment": format_line({"attempt": "x", "started": started}),
    }
    for number, (name, content) in enumerate(broken.items()):
        place = OrderFile(work_dir / "phaze-opt-runs" / f"{name}.1")
        place.directory.mkdir(parents=True)
        place.path.write_text(content)
        os.utime(place.path, (number, number))
        if name == "a record without end":
            (place.directory / "trials.jsonl").touch()
            os.truncate(place.directory / "trials.jsonl", 3 << 30)
    tell(work_dir, EVENTS)  # and then the search is killed
    deliver_all(destination)
    assert trial_numbers(work_dir) == list(range(NUM_TRIALS))
    assert "'experiment'" in place.state(place.read()).reason, "what it lacks is found by who delivers it"
    said: list[str] = []
    assert count_pending(destination, on_broken=said.append) == 2
    assert [name for name in broken if any(name in text for text in said)] == [*broken][:-1]
    assert len(said) == len(broken) - 1
    assert all(text.endswith("nothing of it is delivered") for text in said)
    record(work_dir, example_search(1))
    assert [text for text in caplog.messages if "nothing of it" in text] == said


def test_a_store_whose_making_is_cut_short_is_not_there(tmp_path: Path, monkeypatch) -> None:
    def half_made(tracking_uri):
        path = Path(tracking_uri.removeprefix("sqlite:///"))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("create table experiments (name)")
        raise sqlite3.OperationalError("database is locked")

    with monkeypatch.context() as patch:
        patch.setattr("mlflow.MlflowClient", half_made)
        with pytest.raises(sqlite3.OperationalError):
            store.open_client(Destination(default_uri(tmp_path), tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db.lock"]


def test_what_a_killed_process_left_of_a_store_is_removed(work_dir: Path, destination: Destination) -> None:
    left = work_dir / ".mlflow.db-abcd1234"
    left.mkdir()
    (left / "mlflow.db").write_text("half a store")
    with quiet_mlflow():
        store.open_client(destination)
    assert not left.exists()


def test_a_delivery_leaves_a_record_that_was_put_aside_meanwhile(work_dir: Path, destination: Destination) -> None:
    tell(work_dir, EVENTS[:4])
    (place,) = list_orders(work_dir)
    first = deliver.OrderDelivery(place, destination, open_clock(destination))
    with quiet_mlflow():
        while first.advance(is_last=False):
            pass
        tell(work_dir, EVENTS[:6])
        assert not first.advance(is_last=True)
    assert trial_numbers(work_dir) == [0, 1, 2]
    assert set(place.waiting_files()) == {"config.json"}
    assert deliver_all(destination) == 0
    assert trial_numbers(work_dir) == [0, 0, 1, 1, 2, 2, 3, 4]
