"""What the makers of TPUv4i and TPU v4 published of their 128 MB of common memory (CMEM), and what residency gives.

Published, read in notes of readers on the two papers and not in the papers themselves:
- TPUv4i, inference (Jouppi et al., ISCA 2021, figure 13): performance with 0, 16, 72 and 112 MB of CMEM over that
  with 128 MB: 69, 82, 90 and 98 % (mean of eight production applications), 76, 87, 97 and 100 % (MLPerf). Figure 10:
  CMEM makes MLPerf's BERT 1.33 times as fast in the server scenario and 1.11 times offline.
- TPU v4, training (Jouppi et al., ISCA 2023, section 7.5): 160 MB on chip in place of 32 are 1.18 times as fast, mean
  of eight production applications, of which one gains a factor of 2.

Here: blocks of BERT-Large forward, nothing kept for backward, no dropout, on 4 arrays at 614 GB/s, with norms as
epilogues of products and apart; and training of three models on 64 chips of 8 arrays at 1,200 GB/s. The memory beside
the cores (16 and 32 MB) is the room of tiles, CMEM holds tensors. What CMEM does for weights and embedding tables is
not in the model. The rate of the buffer is CMEM's published one, or that of the memory beside the cores: the truth lies
between, as tiles come from the latter.

Run: python experiments/residency/cmem.py [--write]
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "plans"))

from records import finish, parser_of  # noqa: E402

from phaze_opt.estimate.analytic import AnalyticEstimator  # noqa: E402
from phaze_opt.estimate.calibrated import CalibratedEstimator  # noqa: E402
from phaze_opt.graph.build import build_programs  # noqa: E402
from phaze_opt.graph.fusion import fuse  # noqa: E402
from phaze_opt.graph.lowering import lower  # noqa: E402
from phaze_opt.graph.operator import Operator, Phase  # noqa: E402
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable  # noqa: E402
from phaze_opt.hardware.constants import Constants, load_constants  # noqa: E402
from phaze_opt.hardware.presets import load_architecture  # noqa: E402
from phaze_opt.objective.evaluate import Objective  # noqa: E402
from phaze_opt.objective.scenario import make_scenario  # noqa: E402
from phaze_opt.units import MEBI  # noqa: E402
from phaze_opt.workload.config import load_model  # noqa: E402
from phaze_opt.workload.software import FusionLevel  # noqa: E402
from phaze_opt.workload.training import Optimizer, TrainingSpec  # noqa: E402

CMEM_MIB = (0, 16, 72, 112, 128)
RATES = {"cmem": 1950, "beside the cores": 12_288}
"""Bytes a cycle: 2,048 GB/s at 1.05 GHz, and six times as much."""
PUBLISHED = {
    "production": (0.69, 0.82, 0.90, 0.98, 1.0),
    "mlperf": (0.76, 0.87, 0.97, 1.0, 1.0),
    "bert_server": 1.33,
    "bert_offline": 1.11,
    "training_160_over_32": 1.18,
}


def constants_with(tile_mib: int) -> Constants:
    """Residency with so much room for tiles."""
    planned = load_constants().with_options({"residency": "planned"})
    return planned.with_overrides({"glb.tile_bytes": tile_mib * MEBI})


def forward_of(batch: int, sequence: int, fusion: FusionLevel) -> tuple[Operator, ...]:
    """A block of BERT-Large in inference: what forward writes nobody needs but the next block."""
    model = replace(load_model("bert-large"), has_hidden_dropout=False, has_attention_dropout=False)
    block = build_programs(model, TrainingSpec(batch, sequence, batch), tensor_parallel=1)[1]
    nodes = tuple(node for node in block.nodes if node.phase is Phase.FORWARD)
    return lower(fuse(replace(block, nodes=nodes), fusion), optimizer=Optimizer.ADAM).forward.operators


def inference_chip(cmem_mib: int, rate: int) -> Accelerator:
    """TPUv4i as far as published: 4 arrays, one vector unit of 1,024 lanes, 614 GB/s."""
    text = f"num_tc=4,num_vc=1,tc_width=128,tc_depth=128,vc_width=1024,glb_mb={16 + cmem_mib},hbm_gb=8,hbm_gb_per_s=614"
    chip = load_architecture(text)
    return replace(chip, glb_bandwidth_bytes_per_s=rate * chip.clock_hz)


def inference(batch: int, sequence: int, fusion: FusionLevel) -> list[dict[str, Any]]:
    """Performance of a block by CMEM, over that with all of it."""
    operators, rows = forward_of(batch, sequence, fusion), []
    for name, rate in RATES.items():
        table = AcceleratorTable.from_accelerators([inference_chip(size, rate) for size in CMEM_MIB])
        for kind in (AnalyticEstimator, CalibratedEstimator):
            found = kind(constants_with(16)).estimate(operators, table)
            seconds = found.spread_s.sum(axis=1)
            rows.append(
                {
                    "batch": batch,
                    "sequence": sequence,
                    "fusion": fusion.value,
                    "rate": name,
                    "estimator": kind().name,
                    "of_all_cmem": [round(float(seconds[-1] / each), 3) for each in seconds],
                    "gain": round(float(seconds[0] / seconds[-1]), 3),
                    "hbm_traffic_left": round(float(found.traffic_bytes[-1].sum() / found.traffic_bytes[0].sum()), 3),
                }
            )
    return rows


def training(model: str, rate: int) -> float:
    """Throughput with 160 MB on chip over that with 32, full plans on 64 chips."""
    constants = constants_with(32)
    objective = Objective(make_scenario(model, devices=64, global_batch=512, silicon="phaze"), constants=constants)
    found = []
    for size in (32, 160):
        text = f"num_tc=8,num_vc=2,tc_width=128,tc_depth=128,vc_width=1024,glb_mb={size},hbm_gb=32,hbm_gb_per_s=1200"
        chip = load_architecture(text)
        chip = replace(chip, glb_bandwidth_bytes_per_s=rate * chip.clock_hz)
        found.append(objective.evaluate_accelerator(chip).throughput_samples_per_s)
    return round(found[1] / found[0], 4)


def main() -> None:
    """Compare, print, and maybe write the record."""
    options = parser_of(__doc__).parse_args()
    figures = {
        "published": PUBLISHED,
        "cmem_mib": CMEM_MIB,
        "inference": [
            row
            for fusion in (FusionLevel.EPILOGUE, FusionLevel.ELEMENTWISE)
            for case in ((8, 128), (8, 384), (64, 128), (128, 128))
            for row in inference(*case, fusion)
        ],
        "training": [
            {"model": model, "rate": name, "gain": training(model, rate)}
            for model in ("bert-large", "gpt2-xl", "llama-2-7b")
            for name, rate in RATES.items()
        ],
    }
    finish(__file__, figures, write=options.write)


if __name__ == "__main__":
    main()
