"""What may be said of a run: one table for options and columns, one number both ways, what cannot be run is said."""

import csv
from pathlib import Path

import pytest

import phaze_opt as po
from phaze_opt.cli.evaluate_request import MachineOptions
from phaze_opt.cost.stacks import can_run, list_stacks, option_tables, software_tables
from phaze_opt.cost.suited_software import middle_place
from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.objective.scenario_options import ScenarioOptions, declarations
from phaze_opt.validation.dataset import read_dataset
from phaze_opt.validation.schema import MEMORY, TRAINING
from phaze_opt.validation.training.compiled import compile_training
from phaze_opt.validation.training.entries import read_entries
from phaze_opt.workload.run_options import RUN_OPTIONS

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
        ({"software": "torchtitan", "float8": "row"}, "float8", "did you mean rowwise"),
        ({"software": "torchtitan", "float8": "mx", "dtype": "bf16"}, "float8", "dtype is bf16"),
        ({"power_limit_w": 501}, "power_limit_w", "at most the 500 W of h100-gt"),
        ({"arch": "tpu-v4", "power_limit_w": 100, "zero": ()}, "power_limit_w", "machines that exist"),
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


def test_software_that_nobody_knows_has_one_price_everywhere(tmp_path: Path) -> None:
    """A plan given whole: the middle that `validate` gives its row, of software that cannot run so too."""
    said = {"software": "unheard of", "recompute": "full", "compile": "0"}
    assert priced(**said) == pytest.approx(predicted(tmp_path, **said), rel=1e-9)


@pytest.mark.parametrize(
    ("values", "place"), [([3.0], 0), ([1.0, 2.0], 0), ([5.0, 1.0, 3.0], 2), ([4.0, 4.0, 1.0, 9.0], 0)]
)
def test_the_middle_is_what_one_software_takes(values: list[float], place: int) -> None:
    assert middle_place(values) == place
