"""Tables of runs that name their model: a command or a word is read as columns, what cannot be is one sentence."""

import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.validation.dataset import read_dataset, read_datasets
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.training.compiled import compile_training
from phaze_opt.validation.training.entries import read_entries

CONFIG = {
    "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_hidden_layers": 48, "hidden_size": 2048,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 768,
    "vocab_size": 151936, "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "hidden_act": "silu",
    "tie_word_embeddings": False, "num_local_experts": 128, "num_experts_per_tok": 8,
}  # fmt: skip
HEAD = "table,hardware,model,dtype,n_devices,measured_tokens_per_s_per_dev,command,source,note"
COMMAND = (
    "evaluate --model cfg/some.json --arch b200 --software megatron-core --dtype fp8 --devices 8 --global-batch 512 "
    "--sequence-length 4096 --tensor-parallel 1 --pipeline 1 --interleave 1 --micro-batch 1 --expert-parallel 8 "
    "--top 1 --json"
)


def table(folder: Path, *lines: str, head: str = HEAD) -> tuple[Row, ...]:
    (folder / "cfg").mkdir(exist_ok=True)
    (folder / "cfg" / "some.json").write_text(json.dumps(CONFIG))
    path = folder / "moe.csv"
    path.write_text("\n".join([head, *lines]) + "\n")
    return read_dataset(path).rows


def seconds(row: Row) -> float:
    return float(compile_training([row], read_entries).seconds(load_fitted())[0])


def reason(row: Row) -> str:
    return compile_training([row], read_entries).unscored[0]


def test_a_run_by_its_command_is_the_row_that_the_package_has_of_it(tmp_path: Path) -> None:
    """Qwen3-30B on 8 B200, published tokens a second of each: sizes, plan and time are those of data set moe."""
    (row,) = table(tmp_path, f"t,b200,some,fp8,8,9300,{COMMAND},a page,none")
    own = next(each for each in read_datasets(None, ["moe"])[0][0].rows if each.id == "bridge_moe_002")
    own = replace(own, values=MappingProxyType({**own.values, "float8": ""}))
    assert row.dataset == "moe"
    assert row.number("iter_time_s") == pytest.approx(512 * 4096 / (9300 * 8), rel=1e-12)
    assert seconds(row) == pytest.approx(seconds(own), rel=1e-9)


def test_what_fits_is_not_recomputed(tmp_path: Path) -> None:
    """One sequence a micro-batch fits the memory; sixteen of them only if blocks run again."""
    few, many = table(
        tmp_path,
        *(
            f"t,b200,some,fp8,8,9300,{COMMAND.replace('--micro-batch 1', f'--micro-batch {number}')},a page,none"
            for number in (1, 16)
        ),
    )
    assert (few.text("recompute"), many.text("recompute")) == ("none", "full")


def test_a_plan_in_a_word(tmp_path: Path) -> None:
    head = "hardware,n_devices,model,seq,per_device_batch,plan,step_s"
    row, experts = table(tmp_path, "h100,8,llama-3-8b,4096,2,fsdp8,1.5", "h100,8,some,4096,2,ep8,1.5", head=head)
    assert row.joined("sharding", "global_batch", "layers", "hidden", "iter_time_s") == "fsdp 8|16|32|4096|1.5"
    assert (experts.dataset, experts.text("ep"), experts.text("experts")) == ("moe", "8", "128")
    assert 0.2 < seconds(row) < 2.0


@pytest.mark.parametrize(
    ("model", "command", "words"),
    [
        ("nobodys", "", "no model and no file is named 'nobodys'"),
        ("nobodys", "", "as cfg/nobodys.json"),
        ("deepseek-v3", "", "deepseek-v3 has blocks that differ"),
        ("some", "search --model cfg/some.json", "is none of evaluate"),
        ("some", f"{COMMAND} --stage-blocks 24x24", "the option --stage-blocks"),
        ("some", COMMAND.replace("--pipeline 1", "--pipeline 1x2"), "column 'pp'"),
    ],
)
def test_what_cannot_be_said_in_columns_is_one_sentence(model: str, command: str, words: str, tmp_path: Path) -> None:
    head = f"{HEAD},seq,per_device_batch"
    line = f"t,b200,{model},fp8,8,9300,{command},a page,none,4096,1"
    if "column" in words:
        with pytest.raises(Exception, match=words):
            table(tmp_path, line, head=head)
        return
    (row,) = table(tmp_path, line, head=head)
    assert words in reason(row)


@pytest.mark.parametrize(
    ("columns", "values", "note", "capacity"),
    [
        ("", "", "token drop", 1.0),
        ("", "", "MXFP8; tokens dropped beyond", 1.0),
        ("", "", "no token drop", 0.0),
        ("", "", "dropless", 0.0),
        (",token_drop", ",1", "", 1.0),
        (",token_drop", ",0", "token drop", 0.0),
        (",capacity", ",1.25", "token drop", 1.25),
    ],
)
def test_dropped_tokens_are_read_of_a_column_and_last_of_the_note(
    tmp_path: Path, columns: str, values: str, note: str, capacity: float
) -> None:
    """Experts then take the mean or what the column says, as `--expert-capacity` of the command does."""
    head = HEAD.replace(",note", f"{columns},note")
    (row,) = table(tmp_path, f"t,b200,some,fp8,8,9300,{COMMAND},a page{values},{note}", head=head)
    stated = f"{COMMAND} --expert-capacity {capacity}" if capacity else COMMAND
    (by_command,) = table(tmp_path, f"t,b200,some,fp8,8,9300,{stated},a page,")
    assert seconds(row) == pytest.approx(seconds(by_command), rel=1e-12)


def test_columns_beside_a_command_say_how_it_ran_unless_it_says_otherwise(tmp_path: Path) -> None:
    head = HEAD.replace(",note", ",software,note")
    bridge, other = table(
        tmp_path,
        f"t,b200,some,fp8,8,9300,{COMMAND.replace('--software megatron-core ', '')},a page,megatron-bridge,",
        f"t,b200,some,fp8,8,9300,{COMMAND},a page,megatron-bridge,",
        head=head,
    )
    assert bridge.text("software") == "megatron-bridge"
    assert "megatron-bridge in its column and megatron-core in the row's command" in reason(other)
