"""What a row may differ in belongs to the row, whatever rows stand before it."""

import numpy as np
import pytest

from phaze_opt.cost.stacks import find_software, load_stack
from phaze_opt.cost.suited_software import suited_software
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.validation.dataset import read_dataset
from phaze_opt.validation.predict import load_families
from phaze_opt.validation.training.entries import read_row
from phaze_opt.validation.validate import validate

TRAINING = (
    "hardware,n_devices,layers,hidden,heads,seq,global_batch,micro_batch,tp,pp,interleave,sharding,dtype,recompute,"
    "software,iter_time_s"
)
STEPS = {
    "train_llmfoundry_fsdp": "h100,8,32,4096,32,2048,64,1,1,1,1,fsdp,bf16,full,,2.5",
    "train_nemo_h100_fp8": "h100,64,40,5120,40,2048,256,1,2,1,1,zero1,fp8,none,,1.6",
    "train_megatron_h100": "h100,64,40,5120,40,2048,256,1,2,2,1,zero1,bf16,none,,2.6",
    "train_megatron_sc21": "A100-SXM-80GB,64,40,5120,40,2048,256,1,2,2,1,none,fp16,full,,6.5",
    "train_maxtext_tpu": "TPUv5e,16,32,4096,32,2048,16,1,1,1,1,fsdp,bf16,full,,2.1",
}
OPERATORS = "hardware,op,m,n,k,dtype,timing,latency_us"
CALLS = {
    "op_llmcompass": "a100-80g,matmul,4096,4096,4096,fp16,host,600",
    "op_tpu_gemm": "TPUv6e,matmul,4096,4096,4096,bf16,host,260",
}


def read(folder, header, rows, name="mine.csv", **options):
    path = folder / name
    path.write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    return read_dataset(path, **options)


def predicted(dataset):
    result = validate([dataset], load_families(), load_fitted(), baselines={}).sets[0]
    assert not result.unscored_reasons
    return result, [row.predicted_s for row in result.rows]


@pytest.mark.parametrize(("header", "rows"), [(TRAINING, STEPS), (OPERATORS, CALLS)], ids=["training", "operators"])
def test_every_row_is_priced_as_if_it_stood_alone_whatever_the_order(tmp_path, header, rows):
    alone = {}
    for like, text in rows.items():
        dataset = read(tmp_path, header, [text])
        assert dataset.likes == (like,)
        alone[like] = predicted(dataset)[1][0]
    for order in (list(rows), list(reversed(rows))):
        result, seconds = predicted(read(tmp_path, header, [rows[like] for like in order]))
        assert result.dataset.likes == tuple(order)
        assert seconds == pytest.approx([alone[like] for like in order], rel=1e-12)
        assert {group.label for group in result.groups} >= {f"as {like}" for like in order}
        assert len(result.worst) == len(order)
        for worst in result.worst:
            assert np.isclose(sum(part.seconds for part in worst.parts), worst.result.predicted_s)


def test_a_family_is_given_the_rows_that_it_predicts(tmp_path):
    dataset = read(tmp_path, TRAINING, STEPS.values())
    part = dataset.of(["train_megatron_sc21"])
    assert [row.dataset for row in part.rows] == ["train_megatron_sc21"]
    assert part.name == "mine (train_megatron_sc21)"
    assert dataset.of(STEPS) is dataset


def test_a_row_may_state_its_software(tmp_path):
    text = STEPS["train_llmfoundry_fsdp"]
    stated = text.replace(",full,,", ",full,Megatron-Core,")
    plain = read(tmp_path, TRAINING, [text], like="train_llmfoundry_fsdp")
    for options in ({}, {"like": "train_llmfoundry_fsdp"}):
        dataset = read(tmp_path, TRAINING, [text, stated], **options)
        assert [row.dataset for row in dataset.rows] == ["train_llmfoundry_fsdp", "train_megatron_h100"]
    both = predicted(dataset)[1]
    assert both[0] == pytest.approx(predicted(plain)[1][0], rel=1e-12)
    assert both[1] != pytest.approx(both[0], rel=1e-2)
    fp8 = STEPS["train_nemo_h100_fp8"].replace(",none,,", ",none,megatron-core,")
    assert read(tmp_path, TRAINING, [fp8]).likes == ("train_nemo_h100_fp8",)


def test_a_software_that_is_not_known_is_the_middle_of_those_that_suit(tmp_path):
    """Named or not: it is priced under each, as computed here one by one, and the range is that of all of them."""
    text = STEPS["train_llmfoundry_fsdp"]
    unknown = text.replace(",full,,", ",full,somebodys,")
    dataset = read(tmp_path, TRAINING, [text, unknown])
    row = dataset.rows[0]
    read_in = read_row(row)
    suited = suited_software(read_in.plan, read_in.device, sequence_length=read_in.training.sequence_length)
    assert len(set(suited)) > 1
    one_by_one = [read(tmp_path, TRAINING, [text.replace(",full,,", f",full,{name},")]) for name in suited]
    alone = [predicted(each)[1][0] for each in one_by_one]
    result, seconds = predicted(dataset)
    # A row that names its software is completed as rows of that are: Megatron-Core's head is not tied, say.
    assert seconds == pytest.approx([float(np.median(alone))] * 2, rel=5e-3)
    for each in result.rows:
        assert (each.least_s, each.most_s) == pytest.approx((min(alone), max(alone)), rel=5e-3)


@pytest.mark.parametrize("written", ["Megatron-Core", "megatron_core", " MEGATRON-CORE"])
def test_names_of_software_are_read_in_any_case(written):
    assert find_software(written) == "megatron-core"
    assert find_software("somebodys") == ""
    own = FittedConstants({"stack/megatron-core/somebodys": {"matmul_efficiency": 0.5}})
    assert find_software("Somebodys", own) == "megatron-core/somebodys"
    assert find_software("megatron-core/", own) == "megatron-core"
    assert find_software("megatron-core/others", own) == ""
    assert load_stack("megatron-core/somebodys", own).matmul_efficiency == 0.5
