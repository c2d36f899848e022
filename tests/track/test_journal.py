"""The journal survives crashes, and its state says exactly what a store has."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.track.journal import Journal, JournalReader, JournalWriter, TargetState, exclusive, list_journals

TEXT = st.text(max_size=20)


def write(journal: Journal, *records: dict[str, object]) -> None:
    writer = JournalWriter(journal)
    for record in records:
        writer.append(record)
    writer.close()


@given(records=st.lists(st.dictionaries(TEXT, st.one_of(st.integers(), TEXT, st.booleans())), max_size=8))
def test_what_is_written_is_read_in_order(tmp_path_factory, records) -> None:
    journal = Journal(tmp_path_factory.mktemp("journal"))
    write(journal, *records)
    assert JournalReader(journal).read() == records


@given(cut=st.integers(min_value=1, max_value=40))
def test_a_line_cut_short_costs_that_line_only(tmp_path_factory, cut: int) -> None:
    journal = Journal(tmp_path_factory.mktemp("journal"))
    write(journal, {"n": 1}, {"n": 2, "text": "x" * 40})
    data = journal.path.read_bytes()
    journal.path.write_bytes(data[:-cut])
    assert JournalReader(journal).read() == [{"n": 1}]
    write(journal, {"n": 3})
    records = JournalReader(journal).read()
    assert records[0] == {"n": 1}
    assert records[-1] == {"n": 3}
    # Cutting the newline alone loses nothing; any more leaves an unreadable line that counts as one record.
    assert records[1] == ({"n": 2, "text": "x" * 40} if cut == 1 else {})


def test_a_reader_sees_a_growing_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    reader = JournalReader(journal)
    assert reader.read() == []
    writer = JournalWriter(journal)
    for number in range(3):
        writer.append({"n": number})
        assert reader.read() == [{"n": number}]
    assert reader.read() == []
    assert reader.num_lines == 3
    writer.close()


def test_states_of_two_stores_are_kept_apart(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.save_state("one", TargetState(3, "1", "abc"))
    journal.save_state("two", TargetState(1, reason="locked"))
    assert journal.state("one") == TargetState(3, "1", "abc")
    assert journal.state("two") == TargetState(1, reason="locked")
    assert journal.state("three") == TargetState()


def test_the_latest_attempt_is_found_and_strange_names_stay_inside(tmp_path: Path) -> None:
    assert Journal.latest(tmp_path, "../x y") is None
    attempts = [Journal.begin(tmp_path, "../x y") for _ in range(3)]
    for attempt in attempts:
        write(attempt, {})
    latest = Journal.latest(tmp_path, "../x y")
    assert latest is not None
    assert latest.attempt == max(attempt.attempt for attempt in attempts)
    assert tmp_path / "phaze-opt-runs" in latest.path.parents
    assert set(list_journals(tmp_path)) == set(attempts)


def test_only_one_holds_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with exclusive(lock, is_blocking=True) as first, exclusive(lock, is_blocking=False) as second:
        assert (first, second) == (True, False)
    with exclusive(lock, is_blocking=False) as third:
        assert third
