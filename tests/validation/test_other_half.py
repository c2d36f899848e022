"""Rows that the half of the measurements kept apart may hold, by hand from their sources: all predicted, sanely.

Published figures here are recalled from the papers and pages, not re-read, and are bounds of a factor of 1.5 alone:
nothing may be fitted to them.
"""

import csv
import json
from types import MappingProxyType

import numpy as np
import pytest

from phaze_opt.cli.main import main
from phaze_opt.hardware.device import load_device, path_of
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.validation.predict import predict_rows
from phaze_opt.validation.registry import family_of, load_families
from phaze_opt.validation.row import Row
from phaze_opt.validation.schema import DATASET_SCHEMAS

SC21, KORTHIKANTI, H100 = "train_megatron_sc21", "train_korthikanti22", "train_megatron_h100"
NEMO, FOUNDRY, MAXTEXT = "train_nemo_h100_fp8", "train_llmfoundry_fsdp", "train_maxtext_tpu"
SCALING, LARGE, LAYER = "train_megatron_tp_scaling", "train_large_runs", "layer_korthikanti22"
FACTOR = 1.5
LEAST, MOST = 0.15, 0.75
"""Shares of the peak that model FLOPs may reach; ZeRO 3 on slow networks, as SC21 has it, less (see `PUBLISHED`)."""
MOST_TPU = 0.8
OPTIMIZER = "optimizer states (distributed optimizer) assumed"


def row(dataset, **values):
    columns = dict.fromkeys(DATASET_SCHEMAS[dataset].columns, "")
    return Row(dataset, "other.csv", 2, MappingProxyType(columns | {key: str(value) for key, value in values.items()}))


def step(dataset, device, devices, size, *, batch, seq=2048, tp=1, pp=1, cp=1, **others):
    """A training row; size is layers, hidden and heads, or also key-value heads, MLP width and matrices, vocabulary."""
    layers, hidden, heads, *rest = size
    kv_heads, ffn, matrices, vocab = rest or (heads, 4 * hidden, 2, 51200)
    values = {"model": f"{layers}x{hidden}", "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads}
    values |= {"ffn": ffn, "mlp_matrices": matrices, "vocab": vocab, "seq": seq, "tp": tp, "pp": pp, "cp": cp}
    values |= {"hardware": device, "n_devices": devices, "dp": devices // (tp * pp * cp), "global_batch": batch}
    return row(dataset, **{**values, "dtype": "bf16", "iter_time_s": 1, **others})


def sc21(devices, size, tp, pp, batch, **others):
    return step(SC21, "A100-SXM-80GB", devices, size, tp=tp, pp=pp, batch=batch, recompute="full", **others)


def korthikanti(devices, size, pp, batch, interleave, recompute):
    how = {"interleave": interleave, "recompute": recompute, "seq_parallel": int(recompute == "selective")}
    return step(KORTHIKANTI, "A100-SXM-80GB", devices, size, tp=8, pp=pp, batch=batch, micro_batch=1, **how)


def h100(devices, size, tp, pp, batch):
    size = (*size, size[2], 4 * size[1], 2, 131072)
    return step(H100, "H100-SXM", devices, size, tp=tp, pp=pp, batch=batch, seq=4096, sharding=OPTIMIZER)


def nemo(devices, size, batch, *, micro_batch=1, **others):
    return step(NEMO, "H100-SXM", devices, size, batch=batch, **{"micro_batch": micro_batch, "dtype": "fp8", **others})


def foundry(device, devices, size, seq, micro_batch, accumulated, **others):
    size = (*size, size[2], 4 * size[1], 2, 50368)
    batch = devices * micro_batch * accumulated
    how = {"sharding": "full_shard", "recompute": "none", "note": "precision amp_bf16; mp mode DEFAULT", **others}
    return step(FOUNDRY, device, devices, size, seq=seq, batch=batch, micro_batch=micro_batch, **how)


def maxtext(device, devices, size, per_chip, recompute, sharding="fsdp", **others):
    how = {"micro_batch": per_chip, "recompute": recompute, "sharding": sharding, **others}
    return step(MAXTEXT, device, devices, size, batch=int(devices * per_chip), **how)


def scaling(device, devices, size, tp, batch):
    how = {"sharding": "none", "recompute": "full", "dtype": "fp16"}
    return step(SCALING, device, devices, size, seq=1024, tp=tp, batch=batch, **how)


GPT175, GPT530, GPT1T = (96, 12288, 96), (105, 20480, 128), (128, 25600, 160)
LLAMA7, LLAMA13 = (32, 4096, 32, 32, 11008, 3, 32000), (40, 5120, 40, 40, 13824, 3, 32000)
LLAMA8, LLAMA70 = (32, 4096, 32, 8, 14336, 3, 128256), (80, 8192, 64, 8, 28672, 3, 128256)
LLAMA405 = (126, 16384, 128, 8, 53248, 3, 128256)
NEMOTRON8, NEMOTRON22 = (32, 4096, 32, 32, 16384, 2, 256000), (40, 6144, 48, 48, 24576, 2, 256000)
MPT125M, MPT1B, MPT3B, MPT7B = (12, 768, 12), (24, 2048, 16), (32, 2560, 20), (32, 4096, 32)
MPT13B, MPT30B, MPT70B = (40, 5120, 40), (48, 7168, 56), (80, 8192, 64)
V4_52B, V4_175B = (32, 12288, 32, 32, 49152, 2, 32768), (96, 12288, 96, 96, 49152, 2, 50304)
V5P_32B, V5P_512B = (32, 8192, 64, 64, 28672, 3, 32000), (128, 16384, 128, 128, 57344, 3, 32000)
PALM = (118, 18432, 48, 1, 73728, 2, 256000)

TRAINING = (
    sc21(128, (36, 4096, 32), 4, 1, 512),
    sc21(256, (40, 6144, 48), 8, 1, 1024),
    sc21(512, (48, 8192, 64), 8, 2, 1536),
    sc21(1024, (60, 10240, 80), 8, 4, 1792),
    sc21(2520, GPT530, 8, 35, 2520),
    sc21(3072, GPT1T, 8, 64, 3072),
    sc21(560, GPT530, 8, 35, 2240, micro_batch=1, sharding="none"),
    sc21(2240, GPT530, 8, 35, 2240, micro_batch=1, sharding="none"),
    korthikanti(64, GPT175, 8, 64, 3, "selective"),
    korthikanti(280, GPT530, 35, 280, 3, "full"),
    korthikanti(512, GPT1T, 64, 512, 1, "full"),
    korthikanti(512, GPT1T, 64, 512, 1, "selective"),
    h100(48, (24, 2304, 24), 1, 1, 192),
    h100(48, (24, 3072, 24), 1, 1, 192),
    h100(192, (40, 5120, 40), 4, 1, 192),
    h100(384, (48, 7168, 56), 8, 1, 192),
    h100(768, (70, 9216, 72), 8, 2, 384),
    h100(2304, GPT175, 8, 6, 768),
    nemo(8, LLAMA7, 128, seq=4096),
    nemo(16, LLAMA13, 128, seq=4096, pp=4, interleave=10),
    nemo(64, LLAMA70, 128, seq=8192, tp=4, pp=4, cp=2, interleave=5),
    nemo(64, LLAMA70, 128, seq=8192, sharding="fsdp"),
    nemo(1024, LLAMA405, 512, seq=8192, tp=8, pp=8, cp=2, interleave=8),
    nemo(576, LLAMA405, 252, seq=8192, tp=8, pp=9, cp=2, interleave=7),
    nemo(8, LLAMA8, 128, seq=8192, cp=2, interleave=1),
    nemo(64, NEMOTRON8, 256, seq=4096, tp=2, micro_batch=4),
    nemo(64, NEMOTRON22, 256, seq=4096, tp=2, pp=4, interleave=10),
    nemo(512, GPT175, 2048, tp=4, pp=8, micro_batch=""),
    foundry("H100-SXM", 64, MPT70B, 2048, 8, 4, recompute="full"),
    foundry("H100-SXM", 8, MPT30B, 65536, 1, 1, recompute="full"),
    foundry("H100-SXM", 8, MPT3B, 65536, 1, 1, recompute="full"),
    foundry("H100-SXM", 8, MPT7B, 2048, 10, 4, dtype="fp8"),
    foundry("H100-SXM", 8, MPT1B, 512, 128, 2, dtype="fp8", sharding="shard_grad_op"),
    foundry("A100-SXM-80GB", 64, MPT70B, 2048, 8, 1, recompute="full"),
    foundry("A100-SXM-40GB", 128, MPT13B, 2048, 16, 2, recompute="full"),
    foundry("A100-SXM-40GB", 8, MPT125M, 65536, 1, 1),
    foundry("A100-SXM-80GB", 8, MPT7B, 2048, 6, 4, note="mp mode PURE"),
    maxtext("TPUv4", 192, V4_52B, 7, "full", "fsdp 192 in slice, data parallel 1 across slices", head_dim=256),
    maxtext("TPUv4", 1024, V4_175B, 1, "full", "fsdp 128 in slice, data parallel 1 across slices", tp=8),
    maxtext("TPUv5p", 64, V5P_32B, 6, "minimal", "fsdp 16 in slice, data parallel 1 across slices", tp=4),
    maxtext("TPUv5p", 512, V5P_512B, 2, "full", "fsdp 64 in slice, data parallel 1 across slices", tp=8),
    maxtext("TPUv5e", 12288, V4_175B, 0.5, "full", "fsdp 16 in slice, data parallel 48 across slices", tp=16),
    maxtext("TPUv5e", 256, LLAMA8, 2, "", "", seq=8192),
    maxtext("TPUv6e", 256, LLAMA70, 4, "custom", seq=4096),
    maxtext("TPUv6e", 8, LLAMA8, 3, "custom", seq=8192),
    maxtext("TPUv7", 256, LLAMA405, 1, "custom", "not stated in the summary table", seq=8192),
    maxtext("TPUv7", 64, LLAMA70, 4, "custom", "not stated in the summary table", seq=8192, dtype="fp8"),
    scaling("V100-SXM3-32GB", 1, (40, 1536, 16), 1, 8),
    scaling("V100-SXM3-32GB", 512, (42, 4096, 32), 8, 512),
    scaling("A100-SXM-40GB", 4, (36, 3072, 24), 4, 16),
    step(LARGE, "A100-SXM-80GB", 3360, GPT530, tp=8, pp=35, batch=1920, micro_batch=1, recompute="full"),
    step(LARGE, "TPUv4", 6144, PALM, tp=12, batch=2048, head_dim=256),
)

PUBLISHED = (
    (korthikanti(64, GPT175, 8, 64, 3, "selective"), 13.75),
    (korthikanti(512, GPT1T, 64, 512, 1, "full"), 94.4),
    (korthikanti(512, GPT1T, 64, 512, 1, "selective"), 71.5),
    # 44 and 48 TFLOP/s, with recomputation, of ZeRO 3 on many devices.
    (sc21(1536, GPT175, 1, 1, 1536, sharding="zero3", micro_batch=1), 66.7),
    (sc21(2240, GPT530, 1, 1, 2240, sharding="zero3", micro_batch=1), 183.7),
    (step(LARGE, "A100-SXM-80GB", 3360, GPT530, tp=8, pp=35, batch=1920, micro_batch=1, recompute="full"), 44.4),
    # 238,300 tokens/s.
    (step(LARGE, "TPUv4", 6144, PALM, tp=12, batch=2048, head_dim=256), 17.6),
)


def predict(rows):
    """Times by row, s; none may be unscored."""
    families, fitted = load_families(), load_fitted()
    seconds = []
    for each in rows:
        family = family_of(each.dataset, families)
        found = predict_rows(family, [each], fitted)
        assert not found.unscored, (each.dataset, dict(each.values), found.unscored)
        assert family.regime(each)
        assert family.cell(each)
        parts = found.compiled.explain(fitted, found.places[0])
        assert sum(part.seconds for part in parts) == pytest.approx(float(found.predicted_s[0]), rel=1e-6)
        seconds.append(float(found.predicted_s[0]))
    return seconds


def utilisation(each, seconds):
    """Model FLOPs over the peak, attention counted in full, recomputation not."""
    layers, hidden, heads, seq = (each.integer(name) for name in ("layers", "hidden", "heads", "seq"))
    wide = heads * each.integer("head_dim", hidden // heads)
    keys = each.integer("kv_heads") * wide // heads
    weights = layers * hidden * (2 * wide + 2 * keys + each.integer("mlp_matrices") * each.integer("ffn"))
    tokens = seq * each.integer("global_batch")
    flops = tokens * (6 * (weights + hidden * each.integer("vocab")) + 12 * layers * wide * seq)
    peak = load_device(each.text("hardware")).peak(path_of(each.text("dtype")))
    return flops / (seconds * each.integer("n_devices") * peak)


def test_training_rows_reach_a_credible_share_of_the_peak():
    for each, seconds in zip(TRAINING, predict(TRAINING), strict=True):
        share = utilisation(each, seconds)
        most = MOST_TPU if each.text("hardware").startswith("TPU") else MOST
        assert LEAST <= share <= most, (each.dataset, dict(each.values), share)


def test_published_steps_are_within_a_factor():
    rows = [each for each, _ in PUBLISHED]
    for (each, known), seconds in zip(PUBLISHED, predict(rows), strict=True):
        assert known / FACTOR <= seconds <= known * FACTOR, (dict(each.values), seconds, known)


def test_layers_of_the_other_half_take_longer_forward_and_backward_when_recomputed():
    def layer(recompute, parallel):
        size = {"hidden": 6144, "heads": 64, "seq": 2048, "tp": 8, "micro_batch": 4, "dtype": "fp16"}
        how = {"recompute": recompute, "seq_parallel": parallel, "forward_ms": 1, "backward_ms": 1}
        return row(LAYER, hardware="A100-SXM-80GB", **size, **how)

    none, full = predict([layer("none", 1), layer("full", 0)])
    assert 1.2 * none < full < 1.5 * none


GPUS = ("A100-PCIe-80GB", "H100-SXM", "H200-SXM", "GH200", "B200-SXM", "MI250X", "MI300X", "Gaudi2", "Gaudi3")


PATHS = [
    (device, dtype)
    for device in GPUS
    for dtype in ("bf16", "fp8")
    if path_of(dtype) in load_device(device).peak_flops_per_s
]


def test_all_but_two_of_these_machines_have_8_bit_paths():
    assert {device for device, dtype in PATHS if dtype == "bf16"} == set(GPUS)
    assert set(GPUS) - {device for device, dtype in PATHS if dtype == "fp8"} == {"A100-PCIe-80GB", "MI250X"}


@pytest.mark.parametrize(("device", "dtype"), PATHS)
def test_best_matmuls_reach_half_of_the_peak_or_more(device, dtype):
    sizes = {"b": 1, "m": 4096, "n": 8192, "k": 8192, "dtype": dtype, "latency_us": 1}
    best = row("op_best_matmul", hardware=device, op="best_matmul", timing="device events, mean of 100", **sizes)
    (seconds,) = predict([best])
    assert 0.5 <= 2 * 4096 * 8192**2 / seconds / load_device(device).peak(path_of(dtype)) <= 1.0


LAYER_OPERATORS = {
    "prefill:q_proj": (1, 16384, 3072, 12288, 0.6),
    "prefill:a_mul_v": (192, 2048, 128, 2048, 0.3),
    "prefill:w2_proj": (1, 16384, 12288, 12288, 0.6),
    "prefill:softmax": (1, 393216, 2048, "", 0.3),
    "prefill:layernorm_ffn": (1, 16384, 12288, "", 0.3),
    "decode:q_proj": (1, 8, 3072, 12288, 0.2),
    "decode:q_mul_k": (192, 1, 3072, 128, 0.1),
    "decode:w2_proj": (1, 8, 12288, 12288, 0.5),
}
"""Batch, m, n, k and the share of the roofline that has to be reached at least."""


@pytest.mark.parametrize("name", LAYER_OPERATORS)
def test_operators_of_a_layer_are_near_the_roofline(name):
    batch, m, n, k, share = LAYER_OPERATORS[name]
    sizes = {"b": batch, "m": m, "n": n, "k": k, "dtype": "fp16", "latency_us": 1, "timing": "host wall clock"}
    (seconds,) = predict([row("op_gpt3_layer_llmcompass", hardware="A100-SXM-80GB", n_devices=4, op=name, **sizes)])
    moved = 2 * batch * (m * k + k * n + m * n) if k else 4 * m * n
    device = load_device("A100-SXM-80GB")
    roof = max(2.0 * batch * m * n * (k or 0) / 312e12, moved / device.hbm_bandwidth_bytes_per_s)
    assert roof < seconds < roof / share


FABRICS = {
    ("TPUv6e", 8, 1): "ICI 2D torus",
    ("TPUv7-chiplet", 8, 1): "ICI",
    ("TPUv5p", 64, 1): "",
    ("H100-SXM", 8, 1): "NVLink4 NVSwitch",
    ("H100-SXM", 128, 16): "NVLink4 inside, EFA v2",
    ("B200-SXM", 128, 16): "NVLink5 inside, EFA",
    ("A100-SXM", 16, 2): "NVLink3, InfiniBand",
    ("MI300X", 8, 1): "Infinity Fabric",
    ("V100-SXM", 16, 2): "NVLink2",
}


@pytest.mark.parametrize(("hardware", "devices", "nodes"), FABRICS)
def test_collectives_of_other_machines_grow_from_latency_to_bandwidth(hardware, devices, nodes):
    group = {"hardware": hardware, "n_devices": devices, "n_nodes": nodes, "fabric": FABRICS[hardware, devices, nodes]}
    small, large = predict([row("collective_all_reduce", **group, bytes=size, latency_us=1) for size in (65536, 2**30)])
    assert 1e-5 < small < 1e-3
    # Bus bandwidths of published all-reduces: some tens to some hundreds of GB/s.
    assert 2e10 < 2 * (devices - 1) / devices * 2**30 / large < 6e11


def test_a_folder_with_such_rows_is_scored_whole(tmp_path, capsys):
    """Through the command, with a byte-order mark and the line ends of Windows, blanks where blanks are allowed."""
    rows = [*TRAINING, *(each for each, _ in PUBLISHED)]
    for dataset in sorted({each.dataset for each in rows}):
        with (tmp_path / f"{dataset}.csv").open("w", newline="", encoding="utf-8-sig") as stream:
            writer = csv.DictWriter(stream, list(DATASET_SCHEMAS[dataset].columns), lineterminator="\r\n")
            writer.writeheader()
            # One id for all: keys of the published sets need not tell rows apart.
            writer.writerows([dict(each.values) | {"id": "aa"} for each in rows if each.dataset == dataset])
    with pytest.raises(SystemExit) as stop:
        main(["validate", "--data", str(tmp_path), "--json"])
    assert stop.value.code == 0
    found = json.loads(capsys.readouterr().out)["datasets"]
    assert {name: entry["scored"] for name, entry in found.items()} == {
        name: sum(each.dataset == name for each in rows) for name in found
    }
    assert len(found) == len({each.dataset for each in rows})
    assert all(np.isfinite(entry["mape"]) for entry in found.values())
