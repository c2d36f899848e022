"""Files of measurements: what is read, and every fault by file, line and column."""

import csv
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refused_files import faulty_texts

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.validation.baselines import fit_baselines
from phaze_opt.validation.dataset import read_dataset, read_datasets
from phaze_opt.validation.predict import load_families
from phaze_opt.validation.schema import DATASET_SCHEMAS, LABORATORY, NOT_PREDICTED, OTHER_NAMES, SCHEMAS
from phaze_opt.validation.validate import validate

HEADER = "hardware,op,m,n,dtype,latency_us"
GOOD = "A100-SXM-80GB,gelu,1024,1,fp16,12.5"
TRAINING_HEADER = "hardware,n_devices,layers,hidden,heads,seq,global_batch,iter_time_s"


def write(tmp_path, text, name="op_llmcompass.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def fault(tmp_path, text, name="op_llmcompass.csv", **how):
    path = write(tmp_path, text, name)
    with pytest.raises(InputError) as caught:
        read_dataset(path, **how)
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(str(tmp_path / name))


def test_the_package_s_own_data_is_every_published_set_but_those_of_the_laboratory():
    datasets, (note,) = read_datasets(None)
    assert [dataset.name for dataset in datasets] == [name for name in DATASET_SCHEMAS if name not in LABORATORY]
    assert note.endswith("are not installed; `pip install -e lab` in the repository adds them")
    assert all(dataset.likes == (dataset.name,) for dataset in datasets)
    # Counts that the public half's own description states.
    counts = {dataset.name: len(dataset.rows) for dataset in datasets}
    assert counts["train_vtrain_singlenode"] == 737
    assert counts["mlperf_gpt3"] == 3
    # README.md and docs/validation.md state the sum.
    assert sum(counts.values()) == 4712


@pytest.mark.parametrize("name", LABORATORY)
def test_a_set_of_the_laboratory_says_how_to_get_it(name):
    with pytest.raises(InputError, match=f"{name} is a set of the laboratory.*`pip install -e lab`"):
        read_datasets(None, [name])


def test_kernels_of_a_user_say_which_models_are_not_installed(tmp_path):
    dataset = read_dataset(write(tmp_path, f"{HEADER}\n{GOOD}\n", "mine.csv"))
    (entry,) = validate([dataset], load_families(), load_fitted(), baselines={}).sets
    assert dataset.likes == ("op_modern",)
    assert list(entry.unscored_reasons) == [NOT_PREDICTED["op_modern"]]
    assert "`pip install -e lab`" in NOT_PREDICTED["op_modern"]


def test_values_are_those_of_the_file():
    (dataset,), _ = read_datasets(None, ["train_megatron_sc21"])
    with Path(dataset.rows[0].source).open(newline="", encoding="utf-8") as stream:
        expected = list(csv.DictReader(stream))
    assert [dict(row.values) for row in dataset.rows] == expected
    assert [row.line for row in dataset.rows] == list(range(2, len(expected) + 2))


def test_line_numbers_count_lines_within_quotes_and_blank_lines(tmp_path):
    text = f'{HEADER},note\n{GOOD},"two\nlines"\n\n{GOOD},\nA,gelu,8,8,fp16,x,\n'
    assert fault(tmp_path, text).startswith(":6: column 'latency_us'")


def test_byte_order_mark_line_ends_and_commas_behind_the_last_column_do_not_matter(tmp_path):
    text = f"{HEADER}\n{GOOD}\n"
    plain = read_dataset(write(tmp_path, text))
    windows = read_dataset(write(tmp_path, b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()))
    old = read_dataset(write(tmp_path, text.replace("\n", "\r").encode()))
    trailing = read_dataset(write(tmp_path, text.replace("\n", ",,\n")))
    assert [dict(row.values) for row in plain.rows] == [dict(row.values) for row in trailing.rows]
    assert [dict(row.values) for row in plain.rows] == [dict(row.values) for row in windows.rows]
    assert [dict(row.values) for row in plain.rows] == [dict(row.values) for row in old.rows]


def test_numbers_may_be_blank_in_published_sets_alone(tmp_path):
    """Their description says that blank means not published; such rows are unscored."""
    text = f"{HEADER}\n{GOOD}\nA100-SXM-80GB,gelu,1024,1,fp16,\nA100-SXM-80GB,gelu,,1,fp16,12.5\n"
    assert fault(tmp_path, text, "my.csv").startswith(":3: column 'latency_us': is empty; give a value")
    dataset = read_dataset(write(tmp_path, text))
    (entry,) = validate([dataset], load_families(), load_fitted(), baselines=fit_baselines(read_datasets(None)[0])).sets
    assert entry.scores.num_rows == 1
    assert dict(entry.unscored_reasons) == {
        "column 'latency_us': is empty; give a value": 1,
        "column 'm': is empty; give a value": 1,
    }


def test_one_id_is_one_configuration_except_in_published_sets(tmp_path):
    """Ids of the published sets are hashes of columns of their own choice: one may cover several configurations."""
    text = "\n".join(["id," + HEADER, "a,A,gelu,8,8,fp16,1", "a,A,gelu,16,8,fp16,1"])
    assert fault(tmp_path, text, "my.csv").startswith(":3: column 'id': value 'a' is the id of line 2 too, whose m")
    assert len(read_dataset(write(tmp_path, text)).rows) == 2


def test_a_configuration_may_be_measured_twice(tmp_path):
    dataset = read_dataset(write(tmp_path, f"id,{HEADER}\na,{GOOD}\na,{GOOD}9\n"))
    assert [row.id for row in dataset.rows] == ["a", "a"]


def test_rows_without_id_are_named_by_their_place(tmp_path):
    assert read_dataset(write(tmp_path, f"{HEADER}\n{GOOD}\n")).rows[0].id == "op_llmcompass:2"


@pytest.mark.parametrize(
    ("header", "row", "like"),
    [
        (HEADER, GOOD, "op_modern"),
        (f"{HEADER},timing", f"{GOOD},device events", "op_modern"),
        (f"{HEADER},timing", f"{GOOD},host wall clock", "op_llmcompass"),
        (f"{HEADER},timing,library", f"{GOOD},host wall clock,vllm", "op_modern"),
        (HEADER, "L4,linear,8,8,fp32,1", "op_neusight_fp32"),
        (HEADER, "L4,linear,8,8,Float32,1", "op_neusight_fp32"),
        (HEADER, "TPUv6e,matmul,8,8,bf16,1", "op_tpu_gemm"),
        (HEADER, "tpu-v6e,matmul,8,8,bf16,1", "op_tpu_gemm"),
        (HEADER, "L4,linear,8,8,fp4,1", "op_modern"),
        ("hardware,n_devices,bytes,latency_us", "A100-SXM,8,1024,10", "collective_kinds"),
        (TRAINING_HEADER, "A100-SXM-80GB,8,24,1024,16,1024,8,1", "train_megatron_sc21"),
        (TRAINING_HEADER, "H100-SXM,8,24,1024,16,1024,8,1", "train_megatron_h100"),
        (TRAINING_HEADER, "TPUv5e,8,24,1024,16,1024,8,1", "train_maxtext_tpu"),
        (TRAINING_HEADER + ",dtype", "H100-SXM,8,24,1024,16,1024,8,1,fp8", "train_nemo_h100_fp8"),
        (TRAINING_HEADER + ",dtype", "H100-SXM,8,24,1024,16,1024,8,1,AMP_FP8", "train_nemo_h100_fp8"),
        (TRAINING_HEADER + ",sharding", "H100-SXM,8,24,1024,16,1024,8,1,ZeRO-3", "train_llmfoundry_fsdp"),
        (TRAINING_HEADER + ",sharding", "H100-SXM,8,24,1024,16,1024,8,1,zero1", "train_megatron_h100"),
        (TRAINING_HEADER + ",sharding", "H100-SXM,8,24,1024,16,1024,8,1,full_shard", "train_llmfoundry_fsdp"),
    ],
)
def test_a_user_s_file_is_known_by_its_columns(tmp_path, header, row, like):
    dataset = read_dataset(write(tmp_path, f"{header}\n{row}\n", "mine.csv"))
    assert (dataset.name, dataset.likes) == ("mine", (like,))
    assert {item.dataset for item in dataset.rows} == {like}


def test_a_user_may_say_what_a_file_is_like(tmp_path):
    path = write(tmp_path, f"{HEADER}\n{GOOD}\n", "mine.csv")
    (dataset,), _ = read_datasets(path, ["op_best_matmul"])
    assert dataset.likes == ("op_best_matmul",)
    with pytest.raises(InputError, match="no data set is named 'op_best'.*did you mean op_best_matmul"):
        read_datasets(path, ["op_best"])
    with pytest.raises(InputError, match="one file is one data set"):
        read_datasets(path, ["op_best_matmul", "op_llmcompass"])


def test_a_folder_gives_its_data_sets_in_the_order_of_reports(tmp_path):
    write(tmp_path, f"{HEADER}\n{GOOD}\n", "zebra.csv")
    write(tmp_path, f"{HEADER}\n{GOOD}\n", "op_tpu_gemm.csv")
    write(tmp_path, f"{HEADER}\n{GOOD}\n", "op_llmcompass.csv")
    write(tmp_path, "# words\n", "README.md")
    write(tmp_path, "a,b\n1,2\n", "other.csv")
    datasets, notes = read_datasets(tmp_path)
    assert [dataset.name for dataset in datasets] == ["op_llmcompass", "op_tpu_gemm", "zebra"]
    assert len(notes) == 1
    assert re.search(r"passed over: README.md, other.csv$", notes[0])
    only, _ = read_datasets(tmp_path, ["op_tpu_gemm"])
    assert [dataset.name for dataset in only] == ["op_tpu_gemm"]
    with pytest.raises(InputError, match="no data set is named 'op_tpu_gem' in .*did you mean op_tpu_gemm"):
        read_datasets(tmp_path, ["op_tpu_gem"])


def test_a_folder_without_measurements_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no CSV file of measurements"):
        read_datasets(tmp_path)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.integers(0, 200), st.sampled_from(['"', ",", "\n", "\r", "\t", "-", "nan", "é", " ", "0", "", "1e400"])
        ),
        min_size=1,
        max_size=6,
    )
)
def test_damaged_files_are_read_or_refused_in_one_sentence(tmp_path, damage):
    text = f"id,{HEADER},note\n" + "".join(f'r{index},{GOOD},"a note, quoted"\n' for index in range(3))
    for place, replacement in damage:
        at = place % len(text)
        text = text[:at] + replacement + text[at + 1 :]
    path = write(tmp_path, text)
    try:
        dataset = read_dataset(path)
    except InputError as error:
        assert "\n" not in str(error).replace(str(path), "")
        assert error.line is None or 1 <= error.line <= len(text.splitlines()) + 1
    else:
        assert all(float(row.text("latency_us")) > 0 for row in dataset.rows)


def test_the_documented_columns_are_enough(tmp_path):
    """docs/validation.md promises which columns a user's file needs, by kind."""
    text = (Path(__file__).parents[2] / "docs" / "validation.md").read_text(encoding="utf-8")
    table = text.partition("| kind | columns |")[2].partition("\n\n")[0]
    documented = {}
    for line in table.splitlines()[2:]:
        _, kind, columns, _ = (cell.strip() for cell in line.split("|"))
        documented[kind] = re.findall(r"\w+", columns.partition("(and")[0].replace("(inf or train)", ""))
    kinds = {"a layer": "layer", "a whole model": "whole model"}
    for kind, columns in documented.items():
        schema = next(schema for schema in SCHEMAS if schema.kind == kinds.get(kind, kind))
        assert set(schema.required) <= set(columns) <= set(schema.columns), kind
    assert len(documented) == 10


@pytest.mark.parametrize(("wrong", "kind"), [("n_gpus", "training"), ("n_devices", "training")])
def test_a_file_with_one_wrong_column_keeps_its_kind(tmp_path, wrong, kind):
    last = "iter_time_s" if wrong == "n_gpus" else "iter_time_ms"
    path = tmp_path / "runs.csv"
    path.write_text(f"hardware,{wrong},layers,hidden,heads,seq,global_batch,tp,{last}\nh100,8,4,512,8,512,8,1,1\n")
    with pytest.raises(InputError, match=f"is unknown in a file of {kind}"):
        read_dataset(path)


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("sharding", "FSDP 4"),
        ("sharding", "None"),
        ("kv_heads,mlp_matrices", "4,2"),
        ("kv_heads", "16"),
        ("cp", "1"),
        ("note", "x"),
        ("tp,pp,dp,micro_batch,recompute", "2,2,2,32,Selective"),
    ],
)
def test_training_rows_of_a_user_that_hold_together_are_read(tmp_path, columns, values):
    row = f"{TRAINING_HEADER},{columns}\nA100-SXM-80GB,8,4,1024,16,1024,64,1.0,{values}\n"
    assert len(read_dataset(write(tmp_path, row, "mine.csv")).rows) == 1


def test_rows_that_contradict_themselves_are_read_from_published_sets(tmp_path):
    """Their columns have uses of their own; of a user's file such rows are refused."""
    for faulty in faulty_texts("steps"):
        assert len(read_dataset(write(tmp_path, faulty.text, "train_megatron_sc21.csv")).rows) == 1, faulty.fault


@pytest.mark.parametrize(
    ("name", "column"),
    [("gpu", "hardware"), ("Num-GPUs", "n_devices"), ("batch_size", "global_batch"), ("recompte", "recompute")],
)
def test_a_column_under_another_name_gets_the_one_that_is_meant(tmp_path, name, column):
    header = f"{TRAINING_HEADER},{name}" if column == "recompute" else TRAINING_HEADER.replace(column, name, 1)
    with pytest.raises(InputError, match=f"did you mean {column}") as caught:
        read_dataset(write(tmp_path, f"{header}\nA100,8,24\n", "mine.csv"))
    assert caught.value.line == 1


@pytest.mark.parametrize("first", ["h100,8,32,4096,32,4096,16,2.5", "# my runs", "sep=,"])
def test_a_file_that_does_not_begin_with_names_is_told_so(tmp_path, first):
    assert "names no known column; the first line names the columns" in fault(tmp_path, f"{first}\n1,2\n", "mine.csv")


def test_names_of_columns_are_read_in_any_case(tmp_path):
    text = "hardware,op,m,n,k,dtype,latency_us\nh100,matmul,8192,8192,8192,bf16,1650\n"
    (upper,), (lower,) = (
        read_dataset(write(tmp_path, each, f"{place}.csv")).rows
        for place, each in enumerate((text.replace("op,m,n,k", "Op,M,N,K"), text))
    )
    assert upper.values == lower.values


def test_a_column_that_nobody_knows_is_passed_over_and_named(tmp_path):
    text = "hardware,op,m,n,k,dtype,latency_us,xyzzy,licence\nA100-SXM-80GB,matmul,64,64,64,bf16,5,what,MIT\n"
    dataset = read_dataset(write(tmp_path, text, "mine.csv"))
    assert (dataset.unread, len(dataset.rows)) == (("xyzzy",), 1)


def test_a_column_that_may_be_meant_is_refused(tmp_path):
    text = "hardware,op,m,n,k,dtype,latency_us,timming\nA100-SXM-80GB,matmul,64,64,64,bf16,5,host\n"
    with pytest.raises(InputError, match="'timming' is unknown in a file of operators; did you mean timing"):
        read_dataset(write(tmp_path, text, "mine.csv"))


def test_a_file_of_another_kind_than_the_set_it_is_named_like_is_told_so(tmp_path):
    text = (
        "hardware,op,tokens,hidden,ffn,experts,experts_per_token,dtype,latency_us\nh100,fused_moe,8,64,64,8,2,bf16,5\n"
    )
    with pytest.raises(InputError, match="named as the published set moe; under another name it is of another kind"):
        read_dataset(write(tmp_path, text, "moe.csv"))
    assert len(read_dataset(write(tmp_path, text, "mine.csv")).rows) == 1


def test_other_names_are_of_columns_and_are_no_columns_themselves():
    columns = {name for schema in SCHEMAS for name in schema.columns}
    assert set(OTHER_NAMES) <= columns
    for column, others in OTHER_NAMES.items():
        owners = [schema for schema in SCHEMAS if column in schema.columns]
        assert not [name for name in others.split() if all(name in schema.columns for schema in owners)]
