"""Measured peaks: sources kept out of the fit, what ran is not refused, what is counted, whose software a row is."""

import csv
from pathlib import Path

import numpy as np
import pytest
from kits.measured_rows import changed, public_rows

import phaze_opt.validation.memory as told
from phaze_opt.cost.stacks import (
    CONTEXT_BYTES,
    MEMORY_GROUP,
    PEAK_HIGH_SHARE,
    PEAK_LOW_SHARE,
    load_stack,
    software_tables,
)
from phaze_opt.cost.suited_software import suited_software
from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants, load_fitted, read_own_file
from phaze_opt.record.document import parse_toml
from phaze_opt.validation.baselines import fit_baselines
from phaze_opt.validation.dataset import read_dataset, read_datasets
from phaze_opt.validation.memory import MEMORY, Counter, software_of
from phaze_opt.validation.predict import leave_one_out, predict_held_out
from phaze_opt.validation.training.row import read_run
from phaze_opt.validation.validate import validate

GIB = 2**30
ABLE = "fms-fsdp, llm-foundry-h100, llm-foundry-pure, llm-foundry, nanotron, torchtitan can"
ROWS = public_rows("memory")


def row_of(name: str):
    return next(row for row in ROWS if row.id == name)


def peaks_gib(rows, fitted=None) -> np.ndarray:
    return MEMORY.compile(rows).seconds(load_fitted() if fitted is None else fitted)


def software(row) -> tuple[str, ...]:
    return software_of(row, read_run(row))


def test_the_goals_are_met() -> None:
    (memory,), _ = read_datasets(None, ["memory"])
    found = validate([memory], [MEMORY], load_fitted(), baselines=fit_baselines([memory]))
    assert len(found.goals) == 2
    assert all(goal.is_met for goal in found.goals)
    (entry,) = found.sets
    assert entry.scores.num_rows == len(entry.rows) == 65
    assert entry.scores.mape < entry.baseline_mape / 2


def test_sources_kept_out_lie_within_the_range() -> None:
    """With the constants of the other source: the mean error, and that the range holds nine of ten, or a few more."""
    sources = [MEMORY.splits["source"](row) for row in ROWS]
    assert set(sources) == {"torchtitan_h100", "bigscience_a100"}
    predicted = predict_held_out(MEMORY, ROWS, leave_one_out(sources), FittedConstants({}))
    ratios = np.array([row.number("measured_gib") for row in ROWS]) / predicted
    assert np.abs(1 / ratios - 1).mean() < 0.08
    is_within = (ratios >= 1 - PEAK_LOW_SHARE) & (ratios <= 1 + PEAK_HIGH_SHARE)
    assert 0.85 <= is_within.mean() <= 0.95


def test_nothing_that_ran_is_refused() -> None:
    lows = (1 - PEAK_LOW_SHARE) * peaks_gib([changed(row, kind="nvidia-smi") for row in ROWS])
    assert (lows < [row.number("device_gib") for row in ROWS]).all()


def test_both_constants_rest_on_many_rows() -> None:
    group = read_own_file().groups[MEMORY_GROUP]
    assert set(group.constants) == {"reserve_share", "group_bytes"}
    assert len(group.datasets["memory"]) == len(ROWS)
    assert sum(Counter.of(row.text("kind")) is Counter.DEVICE for row in ROWS) >= 8


def test_each_counter_counts_more_than_the_one_before() -> None:
    row, habits = row_of("torchtitan_h000"), load_stack("torchtitan", load_fitted()).memory
    words = ("peak allocated GiB", "", "peak reserved", "GB by nvidia-smi")
    tensors, unsaid, reserved, device = peaks_gib([changed(row, kind=each) for each in words])
    assert unsaid == reserved == pytest.approx(tensors * (1 + habits.reserve_share), rel=1e-12)
    # All eight devices, which are also the replicas.
    assert device == pytest.approx(reserved + (CONTEXT_BYTES + 2 * habits.group_bytes) / GIB, rel=1e-12)


def test_a_run_of_torchtitan_counted_by_hand() -> None:
    """Llama 3 8B on eight devices, two sequences of 8,192 each: table 1 of its benchmarks."""
    hidden, kv, ffn, vocab, blocks, tokens = 4096, 1024, 14336, 128256, 32, 2 * 8192
    products = 2 * hidden * (hidden + kv) + 3 * hidden * ffn
    parameters = blocks * (products + 2 * hidden) + hidden + 2 * vocab * hidden
    state = (4 + 4 + 8) * parameters / 8
    gathered = 3 * 2 * (vocab * hidden + hidden)
    # A block's input, query, value, attention and gate; the head's input and its norm.
    kept = blocks * 2 * (hidden + hidden + kv + hidden + ffn) * tokens
    # The graph's 16-bit logits are part of the three copies in 32 bits.
    head = 3 * 2 * hidden * tokens
    loss = 3 * 4 * vocab * tokens
    expected = (state + gathered + kept + head + loss) / GIB
    assert peaks_gib([changed(row_of("torchtitan_h000"), kind="allocated")])[0] == pytest.approx(expected, rel=2e-3)


def test_gradients_in_32_bits_are_four_bytes_more_for_each_parameter() -> None:
    """BigScience's chronicle says so of its bf16 runs; a model whose blocks divide evenly is cut alike in both."""
    row = changed(row_of("bigscience_a045"), kind="allocated")
    half, whole = peaks_gib([changed(row, software=f"megatron-deepspeed{end}") for end in ("", "-bf16")])
    hidden, vocab, blocks = 14336, 250880, 12
    parameters = (blocks * 12 * hidden**2 + vocab * hidden) / 8 + 2048 * hidden
    assert (whole - half) * GIB == pytest.approx(4 * parameters, rel=2e-3)


def middle_of(row) -> tuple[str, ...]:
    run = read_run(row)
    return suited_software(run.plan, row.find_device(), sequence_length=run.training.sequence_length)


def test_software_is_what_columns_say_or_the_middle_of_what_suits() -> None:
    """A column comes first, also where it names one that nobody knows."""
    row = changed(row_of("bigscience_a102"), software="")
    assert software(changed(row, software="Nanotron")) == ("nanotron",)
    assert software(changed(row, software="FMS_FSDP")) == ("fms-fsdp",)
    assert software(changed(row, software="megatron-deepspeed")) == ("megatron-deepspeed",)
    bare = changed(row, source="torchtitan", table="torchtitan_h100", note="torchtitan", software="unheard of")
    for each in (bare, changed(bare, sharding="fsdp", tp="1", pp="1", hardware="H100-SXM")):
        assert software(each) == middle_of(each)
        alone = sorted(peaks_gib([changed(each, software=name)])[0] for name in software(each))
        assert peaks_gib([each])[0] == alone[(len(alone) - 1) // 2]
    assert software(changed(bare, hardware="a machine of nobody's"))


@pytest.mark.parametrize(
    ("table", "source", "note", "expected"),
    [
        ("train_torchtitan_h100", "nanotron", "", "torchtitan"),
        ("nanotron_h100", "pytorch/torchtitan", "", "nanotron"),
        ("runs", "github.com/pytorch/TorchTitan of 2024", "beside nanotron", "torchtitan"),
        ("runs", "a page", "Megatron-DeepSpeed", "megatron-deepspeed"),
        ("runs", "BigScience's chronicle", "fp32 gradients", "megatron-deepspeed-bf16"),
        ("runs", "megatron_deepspeed_bf16", "", "megatron-deepspeed-bf16"),
        ("bigscience_a100", "", "Rebalancing  layers", "megatron-deepspeed-bf16"),
        ("bigscience_a100", "", "choosing a topology", "megatron-deepspeed"),
        ("runs", "torchtitan and nanotron", "", ""),
        ("runs", "mytorchtitan2", "fp32 gradients", ""),
    ],
)
def test_without_the_column_table_and_text_say_what_ran(table: str, source: str, note: str, expected: str) -> None:
    """The table's name before its words, these before the source's and the note's; two names say nothing."""
    row = changed(row_of("bigscience_a102"), software="", table=table, source=source, note=note)
    assert software(row) == ((expected,) if expected else middle_of(row))


def test_words_say_no_software_that_cannot_run_so() -> None:
    row = changed(row_of("bigscience_a102"), software="", table="runs", source="BigScience", prefetch="none")
    assert software(row) == middle_of(row) != ("megatron-deepspeed",)


def test_every_word_means_a_software_that_is_known() -> None:
    tables = parse_toml((Path(told.__file__).parent / "software_words.toml").read_text(), source="words").values
    meant = [*tables["names"].values(), *(name for forms in tables["forms"].values() for name in forms.values())]
    assert {*meant, *tables["forms"]} <= set(software_tables())


def test_rows_without_the_column_are_as_good_as_those_with_it() -> None:
    """Tables of two sources as they were published, which have table, source and note."""
    bare = [changed(row, software="") for row in ROWS]
    measured = np.array([row.number("measured_gib") for row in ROWS])
    assert peaks_gib(bare) == pytest.approx(peaks_gib(ROWS), rel=1e-12)
    without_text = [changed(row, source="", note="") for row in bare]
    errors = [np.abs(peaks_gib(rows) / measured - 1).mean() for rows in (bare, without_text)]
    assert errors[0] < 0.05 < errors[1]


def test_what_columns_say_of_a_run_is_held() -> None:
    """Attention alone runs again: more is kept; without gathers ahead less is whole; what cannot run is said."""
    row = changed(row_of("torchtitan_h000"), kind="allocated")
    usual, by_attention, waiting = peaks_gib([row, changed(row, selective="attention"), changed(row, prefetch="none")])
    assert by_attention > usual > waiting
    assert usual - waiting == pytest.approx(2 * (128256 + 1) * 4096 / GIB, rel=1e-3)
    found = MEMORY.compile([changed(row, software="megatron-core", prefetch="none")])
    assert found.unscored == {0: "'software': megatron-core cannot run so (no-prefetch); " + ABLE}


def write(folder: Path, name: str, rows: list[dict[str, str]]) -> Path:
    path = folder / name
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def beside(folder: Path, **change: str) -> Path:
    """One row of a table of steps, and a file of memory that names it."""
    values = {key: text for key, text in row_of("torchtitan_h010").values.items() if text}
    own = {"table": "steps", "id": "torchtitan_h010", "measured_gib": "71.9", "kind": "reserved"}
    steps = {key: text for key, text in values.items() if key not in {*own, "device_gib"}}
    write(folder, "steps.csv", [{"id": values["id"], **steps, "hardware": "h100", "iter_time_s": "19.8"}])
    return write(folder, "peaks.csv", [own | change])


def test_a_row_names_one_of_a_table_beside_its_file(tmp_path: Path) -> None:
    (row,) = read_dataset(beside(tmp_path)).rows
    assert row.dataset == "memory"
    assert peaks_gib([row])[0] == peaks_gib([row_of("torchtitan_h010")])[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": "none"}, "no row of steps.csv is named 'none'"),
        ({"table": "other"}, "other.csv"),
        ({"table": "../steps"}, "must be the name of a CSV file in the same folder"),
        ({"measured_gib": "0"}, "must be a number above 0"),
    ],
)
def test_what_is_not_there_is_refused_in_one_sentence(tmp_path: Path, change: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_dataset(beside(tmp_path, **change))
