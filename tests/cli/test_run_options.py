"""What may be said of a run: one table for options and columns, one number both ways, what cannot be run is said."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from command_runs import run, run_json

import phaze_opt as po
from phaze_opt.cost.stacks import (
    can_run,
    list_stacks,
    load_stack,
    no_option,
    option_tables,
    rows_of_option,
    software_tables,
)
from phaze_opt.cost.suited_software import middle_place
from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.jobs.evaluate_request import MachineOptions
from phaze_opt.objective.alternatives import OTHER_SOFTWARE, other_software
from phaze_opt.objective.scenario_options import ScenarioOptions, declarations
from phaze_opt.objective.software_notes import assumed_note
from phaze_opt.validation.dataset import read_dataset, read_datasets
from phaze_opt.validation.schema import MEMORY, TRAINING
from phaze_opt.validation.training.compiled import compile_training
from phaze_opt.validation.training.entries import read_entries, said_of_run
from phaze_opt.workload.run_options import RUN_OPTIONS
from phaze_opt.workload.software import IDEAL_STACK

ROW = {
    "hardware": "h100-gt", "n_devices": "8", "model": "llama", "layers": "32", "hidden": "4096", "heads": "32",
    "kv_heads": "8", "ffn": "14336", "mlp_matrices": "3", "vocab": "128256", "seq": "8192", "global_batch": "16",
    "micro_batch": "2", "sharding": "zero3", "recompute": "selective", "iter_time_s": "2.8",
}  # fmt: skip
JOB = {
    "model": "llama-3-8b", "arch": "h100-gt", "devices": 8, "global_batch": 16, "sequence_length": 8192,
    "micro_batch": "2", "tensor_parallel": 1, "pipeline": 1, "zero": 3, "recompute": "selective", "has_range": False,
}  # fmt: skip


def predicted(folder: Path, **columns: str) -> float:
    """The step of the row of a file."""
    path, row = folder / "mine.csv", {**ROW, **columns}
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(row))
        writer.writeheader()
        writer.writerow(row)
    compiled = compile_training(read_dataset(path).rows, read_entries)
    assert not compiled.unscored, compiled.unscored
    return float(compiled.seconds(load_fitted())[0])


def priced(**options: object) -> float:
    return float(po.evaluate(**{**JOB, **options}).iteration_time_s)


def test_commands_functions_and_columns_have_every_option_with_its_words() -> None:
    declared = {**declarations(ScenarioOptions), **declarations(MachineOptions)}
    for column, known in RUN_OPTIONS.items():
        assert declared[column].words() is known.words
        assert declared[column].default is None
        assert TRAINING.columns[column].words == MEMORY.columns[column].words == tuple(known.words)
        assert set(known.tables) <= set(known.words)


def test_rows_of_an_option_are_those_of_the_data() -> None:
    """What no row says is told to be assumed, beside the price of a run."""
    rows = [row for data in read_datasets(None)[0] if data.schema is TRAINING for row in data.rows]
    for table in (table for known in RUN_OPTIONS.values() for table in known.tables.values()):
        assert set(rows_of_option(table)) == {row.dataset for row in rows if table in said_of_run(row)}
    assert not any(row.text("power_limit_w", "") for row in rows)
    assert assumed_note(("compile", "async-tp")) == ""
    assert "ran with no-prefetch or a limit of power" in assumed_note(("no-prefetch", "eager"), has_limit=True)


def test_every_word_changes_something_and_every_table_has_a_word() -> None:
    tables = [table for known in RUN_OPTIONS.values() for table in known.tables.values()]
    assert sorted(tables) == sorted(option_tables())
    for table in tables:
        able = [name for name in list_stacks() if can_run(name, table)]
        assert able
        assert "ideal" not in able
    stated = {option for values in software_tables().values() for option in (*values.get("cannot", ()),)}
    assert stated <= set(tables)


SAID = [
    {},
    {"compile": "0"},
    {"compile": "1", "float8": "tensorwise"},
    {"float8": "rowwise"},
    {"async_tp": "1"},
    {"prefetch": "none"},
    {"prefetch": "forward"},
    {"power_limit_w": "350"},
]


@pytest.mark.parametrize("said", SAID, ids=str)
def test_one_number_by_options_and_by_columns(said: dict[str, str], tmp_path: Path) -> None:
    dtype = {"dtype": "fp8"} if "float8" in said else {}
    by_row = predicted(tmp_path, software="torchtitan", **said, **dtype)
    assert priced(software="torchtitan", **said) == pytest.approx(by_row, rel=1e-9)


def test_what_options_say_goes_where_it_should() -> None:
    usual = priced(software="torchtitan")
    assert priced(software="torchtitan", compile="0") > usual
    assert priced(software="torchtitan", compile=1) == usual
    assert priced(software="torchtitan", float8="tensorwise") < usual
    assert priced(software="torchtitan", prefetch="none") > usual > priced(software="torchtitan", prefetch="forward")
    limits = [priced(software="torchtitan", power_limit_w=watts) for watts in (300, 400, 500)]
    assert limits[0] > limits[1] > limits[2] == usual
    # Attention alone runs again: little time, and more than fits.
    assert not po.evaluate(**{**JOB, "software": "torchtitan", "selective": "attention"}).is_feasible


@pytest.mark.parametrize(
    ("said", "key", "words"),
    [
        ({"software": "megatron-core", "async_tp": "1"}, "async_tp", "megatron-core cannot run so (async-tp)"),
        ({"software": "pax", "compile": "0"}, "compile", "pax cannot run so (eager)"),
        ({"software": "ideal", "prefetch": "none"}, "prefetch", "ideal cannot run so"),
        ({"selective": "operators", "recompute": "never"}, "selective", "recompute never has none"),
        ({"selective": "attention", "recompute": "full"}, "selective", "recompute selective or auto"),
        ({"software": "torchtitan", "float8": "row"}, "float8", "did you mean rowwise"),
        ({"software": "torchtitan", "float8": "mx", "dtype": "bf16"}, "float8", "dtype is bf16"),
        ({"power_limit_w": 501}, "power_limit_w", "at most the 500 W of h100-gt"),
        ({"arch": "phaze-tpu-v4", "power_limit_w": 100, "zero": ()}, "power_limit_w", "machines that exist"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_one_sentence(said: dict[str, object], key: str, words: str) -> None:
    with pytest.raises(InputError) as found:
        priced(**said)
    assert found.value.key == key
    assert words in str(found.value)


def test_an_unknown_word_of_a_column_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'row' is unknown; known: tensorwise, rowwise, mx, delayed") as found:
        predicted(tmp_path, float8="row", dtype="fp8")
    assert found.value.line == 2
    with pytest.raises(InputError, match="float8.*give dtype fp8"):
        predicted(tmp_path, float8="mx")


def test_a_row_that_says_what_is_selective_recomputes_so(tmp_path: Path) -> None:
    said = {"software": "torchtitan", "selective": "attention"}
    assert predicted(tmp_path, **said, recompute="") == predicted(tmp_path, **said)
    with pytest.raises(AssertionError, match="the row's recompute is none; leave one out"):
        predicted(tmp_path, **said, recompute="none")


def test_software_that_nobody_knows_has_one_price_everywhere(tmp_path: Path) -> None:
    """A plan given whole: the middle that `validate` gives its row, of software that cannot run so too."""
    said = {"software": "unheard of", "recompute": "full", "compile": "0"}
    assert priced(**said) == pytest.approx(predicted(tmp_path, **said), rel=1e-9)


@pytest.mark.parametrize(
    ("values", "place"), [([3.0], 0), ([1.0, 2.0], 0), ([5.0, 1.0, 3.0], 2), ([4.0, 4.0, 1.0, 9.0], 0)]
)
def test_the_middle_is_what_one_software_takes(values: list[float], place: int) -> None:
    assert middle_place(values) == place


def test_the_range_over_other_software_keeps_the_options_that_it_has() -> None:
    """Recipe and meaning of selective recomputation are megatron-core's too; compiling is not; ideal has none."""
    fitted = load_fitted()
    options = ("compile", "float8-mx", "selective-attention")
    stack = load_stack("torchtitan", fitted, options)
    assert stack.options == options
    core, ideal = (other_software(stack, name, fitted) for name in OTHER_SOFTWARE[::-1])
    assert core == replace(
        load_stack("megatron-core", fitted, options[1:]), gradient_bytes=stack.gradient_bytes, options=options[1:]
    )
    assert core.cast_bytes > other_software(load_stack("torchtitan", fitted), "megatron-core", fitted).cast_bytes
    assert ideal == replace(IDEAL_STACK, gradient_bytes=stack.gradient_bytes)


def test_the_range_is_that_of_the_same_run(capsys, monkeypatch) -> None:
    """A plan under megatron-core with the recipe, as the range of torchtitan's has it and as it is priced alone."""
    job = ["evaluate", "--model", "llama-3-8b", "--arch", "h100", "--devices", "8", "--global-batch", "16"]
    job += ["--micro-batch", "1", "--tensor-parallel", "1", "--pipeline", "1", "--zero", "3", "--recompute", "always"]
    job += ["--gradient-bits", "32", "--float8", "mx"]
    monkeypatch.setattr("phaze_opt.jobs.evaluate.OTHER_SOFTWARE", ("megatron-core",))
    found = run_json([*job, "--software", "torchtitan"], capsys)
    (part,) = [part for part in found["range"]["parts"] if part["name"] == "software"]
    alone = run_json([*job, "--software", "megatron-core", "--no-range"], capsys)
    assert alone["throughput_samples_per_s"] == pytest.approx(part["high"], rel=1e-9)
    assert part["high"] > part["low"] == pytest.approx(found["throughput_samples_per_s"], rel=1e-9)


def test_software_says_who_can_do_what(capsys) -> None:
    """What the list says can be run is taken, and what it leaves out is refused."""
    found = {each["name"]: each["options"] for each in run_json(["software"], capsys)}
    assert set(found) == set(list_stacks())
    for name, own in found.items():
        for column, known in RUN_OPTIONS.items():
            able = {word: not no_option(name, table) for word, table in known.tables.items()}
            assert own[column] == [word for word in able if able[word]]
    assert found["pax"]["compile"] == ["1"]
    code, out, _ = run(["software"], capsys)
    assert code == 0
    assert "--float8 delayed" in out
