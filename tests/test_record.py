"""`make record`: every record of experiments/ can be made; what moved is told apart from what the machine decides."""

import argparse
import json
import re
import runpy
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from recording.declared import RECORDS, Record, choose
from recording.differences import Kind, compare_texts
from recording.making import is_finished
from recording.moved_table import change_of, closing_lines, lines_of
from recording.same_code import made_by, meta_of
from recording.timings import is_timing

from phaze_opt.errors import InputError

ROOT = Path(__file__).parents[1]
EXPERIMENTS = ROOT / "experiments"
BY_NAME = {record.name: record for record in RECORDS}
MAKES_NO_RECORD = {"validation/calibrate.py", "study/bench_long.py", "validation/blind.py", "layer_fusion/train.py"}
"""They fit constants and weights of the package, print, take too long, or need files of others."""
FROZEN = {"experiments/validation/blind.json"}
"""What was written down before a fit can't be made again after it."""
UNIT = re.compile(r"(_s|_ms|_us|_mb|_mib|_kib)(_|$)|^seconds|per_s$")
RESULTS_WITH_UNITS = {
    "tile_mib",
    "glb_mib",
    "cmem_mib",
    "batch_time_s",
    "best_known_samples_per_s",
    "best_s",
    "best_samples_per_s",
    "best_samples_per_s_per_w",
    "even_s",
    "gb_per_s",
    "hbm_gb_per_s",
    "goal_ms",
    "link_bytes_per_s",
    "lower_bound_s",
    "makespan_s",
    "measured_s",
    "original_cpp_s",
    "padding_s",
    "predicted_s",
    "samples_per_s",
    "size_mb",
    "start_glb_mib",
    "store_mb",
    "disk_mb",
    "throughput_samples_per_s",
    "time_limit_s",
    "upper_samples_per_s",
}
run = runpy.run_path(str(EXPERIMENTS / "record.py"))["run"]


def scripts_of(record):
    return [word for text in (*record.commands, record.finish) for word in shlex.split(text) if word.endswith(".py")]


def test_every_file_of_experiments_is_a_record_or_is_read_by_people():
    tracked = subprocess.run(["git", "ls-files", "experiments"], cwd=ROOT, capture_output=True, text=True, check=False)
    files = tracked.stdout.splitlines() or [path.relative_to(ROOT).as_posix() for path in EXPERIMENTS.rglob("*.*")]
    made = [name for record in RECORDS for name in record.files]
    assert len(made) == len(set(made)) == len([name for name in made if (ROOT / name).exists()])
    others = [name for name in files if not name.endswith((".py", ".pyc", "README.md", "-space.toml"))]
    assert set(others) == set(made) | FROZEN


def test_every_script_makes_a_record_or_is_part_of_one():
    scripts = {path.relative_to(EXPERIMENTS).as_posix(): path.read_text() for path in EXPERIMENTS.glob("*/*.py")}
    called = {Path(name).relative_to("experiments").as_posix() for record in RECORDS for name in scripts_of(record)}
    assert called <= scripts.keys()
    programs = {name for name, text in scripts.items() if '__name__ == "__main__"' in text}
    assert programs - called == MAKES_NO_RECORD


def test_every_study_has_a_record():
    named = {
        name for record in RECORDS for name in record.inputs if name.startswith("studies/") and name.endswith(".toml")
    }
    assert named == {path.relative_to(ROOT).as_posix() for path in (ROOT / "studies").glob("*.toml")}


@pytest.mark.parametrize("record", [record for record in RECORDS if record.models], ids=lambda record: record.name)
def test_models_are_written_anew_alone_where_scripts_take_them(record):
    assert all("{models}" in text for text in record.commands)
    assert all("--models" in (ROOT / name).read_text() for name in scripts_of(record))
    found = json.loads((ROOT / record.files[0]).read_text())["results"]
    assert {model for model in record.models if not any(model in key for key in found)} == set()


def test_names_choose_records_groups_and_models():
    def names(*given):
        return [piece.name for piece in choose(given)]

    assert names() == list(BY_NAME)
    assert names("gpt3-175b") == [
        "certified/zoo, gpt3-175b",
        "certified/dense, gpt3-175b",
        "validation/designs, gpt3-175b",
    ]
    assert names("per-model-vs-common", "bert-large")[-1] == "validation/designs, bert-large"
    assert "studies/per-model-vs-common" in names("per-model-vs-common", "bert-large")
    assert names("validation/designs", "bert-large", "dense") == [
        "certified/zoo, bert-large", "certified/dense", "validation/designs",
    ]  # fmt: skip
    assert names("certified/dense:bert-large") == ["certified/dense, bert-large"]
    assert names("network") == ["network/curve_forms", "network/paper_gains"]


@pytest.mark.parametrize("name", ["bert-larg", "result", "zo", "certified/goals:bert-large", "certified/dense:tiny"])
def test_a_name_that_is_none_is_refused_with_the_nearest(name):
    with pytest.raises(InputError) as caught:
        choose([name])
    assert (caught.value.key, "\n" in str(caught.value)) == ("ONLY", False)


def test_every_time_and_size_of_the_records_is_a_timing_or_a_result():
    """A key that is neither would be called moved on another machine, or never."""
    unknown = {}
    for name in (name for record in RECORDS for name in record.files if name.endswith(".json")):
        for path in numbers((), json.loads((ROOT / name).read_text())):
            if UNIT.search(path[-1]) and not is_timing(path) and path[-1] not in RESULTS_WITH_UNITS:
                unknown[path[-1]] = name
            assert not (is_timing(path) and path[-1] in RESULTS_WITH_UNITS), path
    assert unknown == {}


def numbers(path, value):
    """Keys of all numbers."""
    if isinstance(value, dict):
        return [each for key, below in value.items() for each in numbers((*path, key), below)]
    if isinstance(value, list):
        return [each for below in value for each in numbers(path, below)]
    return [path] if isinstance(value, int | float) and not isinstance(value, bool) else []


def compared(old, new, **options):
    """Differences that are no sameness, by key."""
    found = compare_texts(json.dumps(old), json.dumps(new), suffix=".json", **options)
    return {each.key: each for each in found if each.kind is not Kind.SAME}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_a_record_does_not_differ_from_itself(record):
    for name in record.files:
        text = (ROOT / name).read_text()
        found = compare_texts(text, text, suffix=Path(name).suffix)
        assert {each.kind for each in found} <= {Kind.SAME, Kind.TIMING}
        assert [each for each in found if each.old != each.new] == []


def test_figures_are_told_apart_by_what_became_of_them():
    old = {
        "_meta": {"machine": "a", "tolerance": 0.1, "versions": {"numpy": "1"}},
        "rate": 2.0, "same": 1 / 3, "gap": 0.0, "wall_s": 1.0, "is_proved": True, "name": "x", "gone": [1],
    }  # fmt: skip
    new = {
        "_meta": {"machine": "b", "tolerance": 0.2, "versions": {"numpy": "2"}},
        "rate": 3.0, "same": 1 / 3 * (1 + 1e-12), "gap": 1e-3, "wall_s": 9.0, "is_proved": False,
        "name": "y", "new": {"a": 2},
    }  # fmt: skip
    found = compared(old, new)
    assert {key: each.kind for key, each in found.items()} == {
        "_meta > machine": Kind.TIMING, "_meta > versions > numpy": Kind.TIMING, "_meta > tolerance": Kind.MOVED,
        "rate": Kind.MOVED, "gap": Kind.MOVED, "wall_s": Kind.TIMING, "is_proved": Kind.REWORDED, "name": Kind.REWORDED,
        "gone > 1": Kind.GONE, "new > a": Kind.NEW,
    }  # fmt: skip
    assert found["rate"].size == pytest.approx(1 / 3)
    assert found["gap"].size == 1
    assert {each.kind for each in compared(old, new, is_about_speed=True).values()} == {Kind.TIMING}


def test_rows_are_paired_by_what_they_are_about():
    rows = [{"model": name, "seed": seed, "regret": seed + len(name)} for name in ("a", "bb") for seed in (0, 1)]
    changed = [{**row, "regret": 9} if row["model"] == "bb" and row["seed"] else row for row in rows]
    found = compared({"rows": rows}, {"rows": changed[::-1][:3]})
    assert {key: each.kind for key, each in found.items()} == {
        "rows > bb, 1 > regret": Kind.MOVED,
        "rows > a, 0 > model": Kind.GONE,
        "rows > a, 0 > seed": Kind.GONE,
        "rows > a, 0 > regret": Kind.GONE,
    }


def test_sentences_are_compared_by_their_numbers_and_never_by_seconds():
    old = ["wham loses 1,234.5 W; a search takes 23.2 s in the mean.", "5 of 7 agree."]
    assert compared(old, ["wham loses 1,234.5 W; a search takes 99 s in the mean.", "5 of 7 agree."]) == {}
    found = compared(old, ["wham loses 2,469 W; a search takes 1 s in the mean.", "None agrees."])
    assert [(each.kind, each.old, each.new) for each in found.values()] == [
        (Kind.MOVED, 1234.5, 2469.0),
        (Kind.REWORDED, "5 of 7 agree.", "None agrees."),
    ]


MAKE = """
import json, pathlib, sys
here = pathlib.Path(__file__).parent
out = here / "sums.json"
known = json.loads(out.read_text()) if out.exists() else {}
for model in sys.argv[1:]:
    known[model] = {"sum": len(model) + FACTOR, "wall_s": 1.0}
out.write_text(json.dumps(known))
"""
BREAK = """
import pathlib
(pathlib.Path(__file__).parent / "broken.json").write_text("{")
"""
PAGE = """
import json, pathlib
here = pathlib.Path(__file__).parent
with (here.parents[1] / "README.md").open("a") as page:
    page.write(f" bert {json.loads((here / 'sums.json').read_text())['bert']['sum']}")
"""
SUMS = Record(
    "toy/sums",
    ("experiments/toy/sums.json",),
    ("python experiments/toy/make.py {models}",),
    1,
    models=("bert", "opt"),
    inputs=("input.toml",),
)
BROKEN = Record("toy/broken", ("experiments/toy/broken.json",), ("python experiments/toy/break.py",), 1)
RAISING = Record("toy/raising", ("experiments/toy/raising.json",), ("python experiments/toy/no_such.py",), 1)
ALL = (RAISING, BROKEN, SUMS)


class Repository:
    """A small repository with three records, two of which cannot be made."""

    def __init__(self, root):
        self.root, self.work = root, root / "out"
        self.write("README.md", "See experiments/toy/sums.json.")
        self.write("phaze_opt/price.txt", "1")
        self.write("input.toml", "")
        self.write("experiments/toy/make.py", MAKE.replace("FACTOR", "1"))
        self.write("experiments/toy/break.py", BREAK)
        for name in ("sums", "broken", "raising"):
            self.write(f"experiments/toy/{name}.json", json.dumps({"bert": {"sum": 4, "wall_s": 2.0}}))
        for words in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm all"):
            subprocess.run(["git", *words.split()], cwd=root, check=True)

    def write(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def read(self, name):
        return json.loads((self.root / f"experiments/toy/{name}.json").read_text())

    def run(self, *names, again=False, changes=False, records=ALL):
        options = argparse.Namespace(
            names=names, again=again, changes=changes, list=False, against="HEAD", most=10, work_dir=self.work
        )
        return run(options, records=records, root=self.root)


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


def test_records_are_made_and_what_fails_stays_as_it_was(repository, capsys):
    before = repository.read("broken")
    assert repository.run() == 1
    out = capsys.readouterr().out
    assert repository.read("sums") == {"bert": {"sum": 5, "wall_s": 1.0}, "opt": {"sum": 4, "wall_s": 1.0}}
    assert repository.read("broken") == repository.read("raising") == before
    failed = [line for line in out.splitlines() if "failed" in line]
    assert [("no_such.py" in line, "not whole" in line) for line in failed] == [(True, False), (False, True)]
    assert "Traceback" not in out
    assert out.splitlines()[-2:] == [
        "moved, the largest change first: toy/sums (+25 %)",
        "did not move: toy/raising, toy/broken",
    ]
    assert "  read again: README.md" in out.splitlines()


def test_what_the_same_code_finished_is_not_made_again(repository, capsys):
    assert repository.run("sums") == 0
    capsys.readouterr()
    for change in (None, ("phaze_opt/price.txt", "2"), ("input.toml", "a = 1"), ("experiments/toy/sums.json", "{}")):
        if change:
            repository.write(*change)
        assert repository.run("sums") == 0
        assert ("finished before" in capsys.readouterr().out) == (change is None)
        assert repository.read("sums")["opt"]["sum"] == 4
        assert repository.run("bert") == 0
        assert "finished before" in capsys.readouterr().out
    repository.run("sums", again=True)
    assert "finished before" not in capsys.readouterr().out


def test_one_model_is_made_anew_and_the_others_stay(repository):
    repository.write("experiments/toy/sums.json", json.dumps({"opt": {"sum": 77}}))
    assert repository.run("bert") == 0
    assert repository.read("sums") == {"opt": {"sum": 77}, "bert": {"sum": 5, "wall_s": 1.0}}
    pieces = {piece.model: piece for piece in choose(["bert", "opt"], ALL)} | {"": choose(["sums"], ALL)[0]}
    finished = {model: is_finished(piece, repository.root, repository.work) for model, piece in pieces.items()}
    assert finished == {"bert": True, "opt": False, "": False}


STOP = """
import os, pathlib, signal, sys
once = pathlib.Path(sys.argv[1]) / "once"
if not once.exists():
    once.touch()
    os.kill(os.getppid(), signal.SIGINT)
"""


def test_a_page_that_follows_a_record_is_written_in_the_repository(repository):
    """In the copy it would take the place of what was edited meanwhile."""
    repository.write("experiments/toy/page.py", PAGE)
    record = replace(SUMS, finish="python experiments/toy/page.py")
    assert repository.run(records=(record,)) == 0
    assert (repository.root / "README.md").read_text() == "See experiments/toy/sums.json. bert 5"


@pytest.fixture
def stopping(repository):
    """A record whose second command is interrupted the first time."""
    repository.write("experiments/toy/stop.py", STOP)
    commands = ("python experiments/toy/make.py {models}", "python experiments/toy/stop.py {work}")
    return Record("toy/sums", SUMS.files, commands, 1, models=SUMS.models)


def test_an_interrupted_record_goes_on_where_it_was(repository, stopping, capsys):
    """The second command finds what it kept, and the first is not run again."""
    before = repository.read("sums")
    assert repository.run(records=(stopping,)) == 130
    assert "interrupted" in capsys.readouterr().out
    assert repository.read("sums") == before
    (kept,) = repository.work.glob("*/tree/experiments/toy/sums.json")
    assert json.loads(kept.read_text()).keys() == {"bert", "opt"}
    kept.write_text(json.dumps({"kept": {"sum": 3}}))
    assert repository.run(records=(stopping,)) == 0
    assert repository.read("sums") == {"kept": {"sum": 3}}


def test_what_was_written_meanwhile_is_not_lost(repository, stopping):
    """A copy that was interrupted begins anew if the record's files are others by now."""
    assert repository.run("bert", records=(stopping,)) == 130
    repository.write("experiments/toy/sums.json", json.dumps({"opt": {"sum": 77}}))
    assert repository.run("bert", records=(stopping,)) == 130
    assert repository.run("bert", records=(stopping,)) == 0
    assert repository.read("sums") == {"opt": {"sum": 77}, "bert": {"sum": 5, "wall_s": 1.0}}


def test_changes_are_told_without_making_anything(repository, capsys):
    repository.write("experiments/toy/sums.json", json.dumps({"bert": {"sum": 8, "wall_s": 4.0}}))
    assert repository.run("sums", changes=True) == 0
    out = capsys.readouterr().out
    assert not repository.work.exists()
    assert "toy/sums: 1 moved, 0 same; 1 timings and facts of the machine differ, 2.00 times in the median" in out
    assert "     +100 %  bert > sum: 4 to 8" in out


def test_another_commit_is_asked_for_in_words(repository):
    with pytest.raises(InputError) as caught:
        change_of(SUMS, repository.root, "nowhere")
    assert caught.value.key == "--against"


def test_what_moved_is_listed_by_size(repository):
    repository.write("experiments/toy/sums.json", json.dumps({"bert": {"sum": 4.4, "wall_s": 2.0}}))
    repository.write("experiments/toy/broken.json", json.dumps({"bert": {"sum": 1, "wall_s": 2.0}}))
    changes = [change_of(record, repository.root, "HEAD") for record in (SUMS, BROKEN, RAISING)]
    assert list(closing_lines(changes)) == [
        "moved, the largest change first: toy/broken (-75 %), toy/sums (+10 %)",
        "did not move: toy/raising",
    ]
    assert list(lines_of(changes[2], most=3)) == ["toy/raising: 1 same"]


def test_a_record_goes_on_with_what_the_same_code_made(tmp_path):
    path = tmp_path / "record.json"
    assert made_by("own", path) == {}
    whole = {"_meta": meta_of("python own.py", "own"), "rows": [1]}
    path.write_text(json.dumps(whole), encoding="utf-8")
    assert made_by("own", path) == whole
    assert made_by("other", path) == {}
    assert is_timing(("_meta", "code"))
