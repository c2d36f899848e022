"""What Themis and LIBRA gain on the networks and workloads of their papers, by the package's own schedules and solver.

Themis (Rashidi et al., ISCA 2022): six topologies of 1024 devices, as units, links and link bandwidths of the runs
published with the simulator; its abstract says 1.72 times on average for a single all-reduce, 2.70 at most. LIBRA (Won
et al., ISPASS 2024): the 4-dimensional network of 4,096 devices and the workloads published with it; collectives alone,
in chunks, against an equal split. The paper's own averages could not be read here, so none is stated.

Run: python experiments/network/paper_gains.py [--write]
"""

import argparse
import json
import math
from pathlib import Path

import numpy as np

from phaze_opt.estimate.bandwidth_allocation import (
    BandwidthBudget,
    GroupCollective,
    allocate_bandwidth,
    collective_loads,
    loads_s,
)
from phaze_opt.estimate.chunk_schedule import schedule_chunks
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import Chunking, NetworkDimension, Topology

RESULT = Path(__file__).with_suffix(".json")
LATENCY_S = 1e-6
PAYLOADS = (1e8, 2.5e8, 5e8, 1e9)
THEMIS = {
    "2D SW_SW": ((16, 150), (64, 100)),
    "3D SW_SW_SW homogeneous": ((16, 100), (8, 100), (8, 100)),
    "3D SW_SW_SW heterogeneous": ((16, 200), (8, 100), (8, 50)),
    "3D FC_Ring_SW": ((8, 175), (16, 100), (8, 50)),
    "4D Ring_SW_SW_SW": ((4, 250), (4, 200), (8, 100), (8, 50)),
    "4D Ring_FC_Ring_SW": ((4, 375), (8, 175), (4, 150), (8, 100)),
}
LIBRA_COSTS = (2.0, 17.0, 17.0, 57.4)
"""$ a GB/s: chiplet link; package and node links with their switches; pod link, switch and adapter."""
REDUCE, GATHER = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
LIBRA = {
    "Turing-NLG": ((REDUCE, (4, 8, 4, 32), 869449728, 1),),
    "GPT-3": (
        (REDUCE, (4, 4, 1, 1), 805306368, 8),
        (GATHER, (4, 4, 1, 1), 50331648, 2),
        (REDUCE, (1, 2, 4, 32), 452984832, 1),
    ),
    "MSFT-1T": (
        (REDUCE, (4, 8, 4, 1), 805306368, 8),
        (GATHER, (4, 8, 4, 1), 6291456, 2),
        (REDUCE, (1, 1, 1, 32), 226492416, 1),
    ),
}
TOTAL_BYTES_PER_S = 500e9


def themis_gains() -> dict[str, object]:
    """Fixed order over Themis's, by topology, and how busy the links are."""
    rows: dict[str, object] = {}
    gains = []
    for name, levels in THEMIS.items():
        group = [NetworkDimension(Topology.SWITCH, size, rate * 1e9, LATENCY_S) for size, rate in levels]
        both = [
            [schedule_chunks(REDUCE, s, group, chunking=c) for c in (Chunking.FIXED, Chunking.THEMIS)] for s in PAYLOADS
        ]
        own = [fixed.seconds / themis.seconds for fixed, themis in both]
        gains += own
        busy = [[sum(s.load_s) / len(s.load_s) / s.seconds for s in pair] for pair in both]
        rows[name] = {
            "gain": [round(gain, 3) for gain in own],
            "links_busy_fixed": round(float(np.mean([pair[0] for pair in busy])), 3),
            "links_busy_themis": round(float(np.mean([pair[1] for pair in busy])), 3),
        }
    return {"topologies": rows, "mean_gain": round(float(np.mean(gains)), 3), "largest_gain": round(max(gains), 3)}


def libra_gains() -> dict[str, object]:
    """Equal split over the allocation, by workload, chunking and budget."""
    rows: dict[str, object] = {}
    for name, collectives in LIBRA.items():
        step = [
            GroupCollective(kind.value, kind, float(size), _levels(sizes), float(count))
            for kind, sizes, size, count in collectives
        ]
        for chunking in Chunking:
            loads = [load for each in step for load in collective_loads(each, chunking)]
            for label, costs in (("bandwidth", (1.0,) * 4), ("cost", LIBRA_COSTS)):
                budget = BandwidthBudget(TOTAL_BYTES_PER_S * math.fsum(costs) / 4, costs)
                found = allocate_bandwidth(loads, budget)
                rows[f"{name}, {chunking.value}, {label}"] = {
                    "gain": round(loads_s(loads, budget.equal_split()) / found.seconds, 3),
                    "gb_per_s": [round(rate / 1e9, 1) for rate in found.bandwidth_bytes_per_s],
                    "gap": float(f"{found.gap:.1e}"),
                }
    return rows


def _levels(sizes: tuple[int, ...]) -> tuple[NetworkDimension, ...]:
    return tuple(NetworkDimension(Topology.SWITCH, size, TOTAL_BYTES_PER_S / 4, LATENCY_S) for size in sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    arguments = parser.parse_args()
    meta = {"command": "python experiments/network/paper_gains.py --write", "tolerance": 0.01}
    found = {"_meta": meta, "themis": themis_gains(), "libra": libra_gains()}
    text = json.dumps(found, indent=1) + "\n"
    if arguments.write:
        RESULT.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
