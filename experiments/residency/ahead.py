"""What fetching ahead could give at most: all HBM traffic of a phase overlapped with all its work, on TPU v4 and v4i.

A phase takes the sum over operators of the longer of work and traffic, as the package prices it. Weights and
activations fetched while earlier operators run can at best make it the longer of both sums: no compiler does better
within a phase, whatever room it has. Work is what an operator takes where HBM is no limit.

Run: python experiments/residency/ahead.py [--write]
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "plans"))

from cmem import RATES, constants_with, forward_of, inference_chip  # noqa: E402
from records import finish, parser_of  # noqa: E402

from phaze_opt.estimate.calibrated import CalibratedEstimator, DesignTerms  # noqa: E402
from phaze_opt.graph.build import build_programs  # noqa: E402
from phaze_opt.graph.fusion import fuse  # noqa: E402
from phaze_opt.graph.lowering import lower  # noqa: E402
from phaze_opt.graph.operator import Operator  # noqa: E402
from phaze_opt.hardware.accelerator import Accelerator, table_of  # noqa: E402
from phaze_opt.hardware.presets import load_architecture  # noqa: E402
from phaze_opt.workload.config import load_model  # noqa: E402
from phaze_opt.workload.software import FusionLevel  # noqa: E402
from phaze_opt.workload.training import Optimizer, TrainingSpec  # noqa: E402

NO_LIMIT = 1e6
"""Times HBM's rate: no operator waits for it."""
TRAINED = (("bert-large", 8, 512), ("gpt2-xl", 4, 1024), ("llama-2-7b", 1, 4096))


def most_gains(operators: Sequence[Operator], chip: Accelerator, room_mib: int) -> dict[str, Any]:
    """Most gain by both estimators: the calibrated one waits for tiles, as measured; the analytic one does not."""
    constants = constants_with(room_mib)
    terms = {"calibrated": None, "analytic": DesignTerms()}
    return {
        name: most_gain(operators, chip, CalibratedEstimator(constants, terms=each)) for name, each in terms.items()
    }


def most_gain(operators: Sequence[Operator], chip: Accelerator, estimator: CalibratedEstimator) -> dict[str, float]:
    """Gain of perfect overlap, and what it is made of."""
    found = estimator.estimate(operators, table_of(chip))
    fast = replace(chip, hbm_bandwidth_bytes_per_s=chip.hbm_bandwidth_bytes_per_s * NO_LIMIT)
    total, work = (float(each.spread_s.sum()) for each in (found, estimator.estimate(operators, table_of(fast))))
    rate = chip.hbm_bandwidth_bytes_per_s * estimator.terms.memory_efficiency
    traffic = float(found.traffic_bytes.sum()) / rate
    return {"most_gain": round(total / max(work, traffic), 4), "traffic_over_work": round(traffic / work, 4)}


def training(model: str, batch: int, sequence: int) -> list[dict[str, Any]]:
    """Forward and backward of a block on TPU v4, with 32 MB and 160 MB on chip."""
    block = build_programs(load_model(model), TrainingSpec(batch, sequence, batch), tensor_parallel=1)[1]
    layer = lower(fuse(block, FusionLevel.EPILOGUE), optimizer=Optimizer.ADAM)
    published = load_architecture("tpu-v4")
    rows = []
    for phase in ("forward", "backward"):
        for size_mib in (32, 160):
            chip = replace(published, glb_bytes=size_mib << 20)
            gain = most_gains(getattr(layer, phase).operators, chip, 32)
            rows.append({"model": model, "batch": batch, "phase": phase, "mib": size_mib, **gain})
    return rows


def inference(batch: int, sequence: int) -> list[dict[str, Any]]:
    """A block of BERT-Large forward on TPUv4i, without CMEM and with all of it."""
    return [
        {
            "batch": batch,
            "sequence": sequence,
            "fusion": fusion.value,
            "cmem_mib": size,
            **most_gains(forward_of(batch, sequence, fusion), inference_chip(size, RATES["cmem"]), 16),
        }
        for fusion in (FusionLevel.EPILOGUE, FusionLevel.ELEMENTWISE)
        for size in (0, 128)
    ]


def main() -> None:
    """Bound, print, and maybe write the record."""
    options = parser_of(__doc__).parse_args()
    figures = {
        "training": [row for case in TRAINED for row in training(*case)],
        "inference": [row for case in ((1, 384), (8, 128), (64, 128), (128, 128)) for row in inference(*case)],
    }
    finish(__file__, figures, write=options.write)


if __name__ == "__main__":
    main()
