"""How much of the HBM traffic that could be saved the planned addresses save, on layers of every model of the zoo.

Forward and backward of embedding, block and head; tensor degrees 1 to 8, micro-batches 1 to 8, fused and unfused
attention. Holds are tensors and rooms of tiles. Beside what they save: the most that any shares of them could save at
the same capacity (a linear program), what each would save alone, and, of tensors alone, what addresses save that hold
for every schedule and not for the program's order only: there two tensors may share bytes if all operators of one come
before all of the other on paths of the graph. And of blocks, what operators move and take on a chip with two HBM
stacks, as the estimator has it, over what they do where nothing is held.

Run: python experiments/residency/gap.py [--write]
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "plans"))
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from kits.residency import most_saved_bytes, saved_alone, saved_bytes, value_of  # noqa: E402
from records import finish, parser_of  # noqa: E402

from phaze_opt.errors import InputError  # noqa: E402
from phaze_opt.estimate.analytic import AnalyticEstimator  # noqa: E402
from phaze_opt.graph.build import build_model_graph  # noqa: E402
from phaze_opt.graph.operator import Hold, OperatorGraph  # noqa: E402
from phaze_opt.graph.residency import is_on_core, place_holds  # noqa: E402
from phaze_opt.hardware.accelerator import AcceleratorTable  # noqa: E402
from phaze_opt.hardware.constants import load_constants  # noqa: E402
from phaze_opt.hardware.presets import load_architecture  # noqa: E402
from phaze_opt.units import MEBI  # noqa: E402
from phaze_opt.workload.config import load_model  # noqa: E402
from phaze_opt.workload.training import AttentionForm, TrainingSpec  # noqa: E402
from phaze_opt.workload.zoo import list_models  # noqa: E402

TILE_BYTES = int(load_constants().value("glb.tile_bytes"))
GLB_MIB = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)
SEQUENCE = 2048
NONE = load_constants().with_options({"residency": "none"})
PLANNED = NONE.with_options({"residency": "planned"})
CHIP = "num_tc=16,num_vc=16,tc_width=128,tc_depth=128,vc_width=128,glb_mb=8,hbm_gb=32"


def graphs_of(name: str) -> list[OperatorGraph]:
    """Distinct phases of a model's layers that hold anything."""
    model = load_model(name)
    found: dict[OperatorGraph, None] = {}
    for tensor in (1, 2, 4, 8):
        for micro_batch in (1, 2, 4, 8):
            for form in AttentionForm:
                sequence = min(SEQUENCE, model.max_sequence_length)
                training = TrainingSpec(micro_batch, sequence, 8, attention=form)
                try:
                    graph = build_model_graph(model, training, tensor_parallel=tensor)
                except InputError:
                    continue
                for layer in graph.layers:
                    found.update({each: None for each in (layer.forward, layer.backward) if each.holds})
    return list(found)


def placed_for_every_schedule(graph: OperatorGraph) -> list[int]:
    """Addresses by the same rule where tensors meet unless the graph orders them."""
    count, holds = len(graph.operators), graph.holds
    before = np.zeros((count, count), bool)
    for source, target in sorted(graph.edges, key=lambda edge: edge[1]):
        before[:, target] |= before[:, source]
        before[source, target] = True
    touched = [[hold.first, *(saving.operator for saving in hold.savings)] for hold in holds]
    runs = np.cumsum([0, *(is_on_core(each) for each in graph.operators)])

    def meet(one: int, other: int) -> bool:
        if holds[one].tensor == holds[other].tensor:
            return False
        if holds[one].is_room and holds[other].is_room:
            return touched[one] == touched[other]
        pair = np.ix_(touched[one], touched[other])
        return not (before[pair].all() or before.T[pair].all())

    def density(hold: Hold) -> Fraction:
        return Fraction(value_of(hold), hold.num_bytes * int(runs[hold.last + 1] - runs[hold.first]))

    addresses: dict[int, int] = {}
    for number in sorted(range(len(holds)), key=lambda each: (-density(holds[each]), holds[each].first, each)):
        address = 0
        barred = sorted((addresses[other], holds[other].num_bytes) for other in addresses if meet(number, other))
        for start, num_bytes in barred:
            if start - address >= holds[number].num_bytes:
                break
            address = max(address, start + num_bytes)
        addresses[number] = address
    return [addresses[number] for number in range(len(holds))]


def estimated(graphs: list[OperatorGraph]) -> list[list[list[float]]]:
    """Traffic and serial time of each graph by size of the buffer, over those without residency."""
    chip = load_architecture(CHIP, constants=NONE)
    chips = [replace(chip, glb_bytes=size * MEBI, glb_bandwidth_bytes_per_s=4096 * chip.clock_hz) for size in GLB_MIB]
    table, found = AcceleratorTable.from_accelerators(chips), []
    for graph in graphs:
        with_it, without = (AnalyticEstimator(each).estimate(graph.operators, table) for each in (PLANNED, NONE))
        pairs = ((getattr(with_it, name), getattr(without, name)) for name in ("traffic_bytes", "spread_s"))
        found.append([list(one.sum(axis=1) / other.sum(axis=1)) for one, other in pairs])
    return found


def of_tensors(holds: Sequence[Hold], addresses: Sequence[int], room: int) -> float:
    """What holds save that are no rooms of tiles."""
    pairs = [(hold, address) for hold, address in zip(holds, addresses, strict=True) if not hold.is_room]
    return saved_bytes([hold for hold, _ in pairs], [address for _, address in pairs], room)


def main() -> None:
    """Measure, print, and maybe write the record."""
    options = parser_of(__doc__).parse_args()
    rows: dict[int, list[tuple[float, ...]]] = defaultdict(list)
    num_graphs, ratios = {}, []
    for name in list_models():
        graphs = graphs_of(name)
        num_graphs[name] = len(graphs)
        ratios.extend(estimated([each for each in graphs if any("mlp_down" in one.name for one in each.operators)]))
        for graph in graphs:
            addresses = place_holds(graph.holds, [is_on_core(each) for each in graph.operators])
            loose = placed_for_every_schedule(graph)
            traffic = sum(each.traffic_bytes for each in graph.operators if is_on_core(each))
            for size in GLB_MIB:
                room = max(0, size * MEBI - TILE_BYTES)
                saved, most = saved_bytes(graph.holds, addresses, room), most_saved_bytes(graph.holds, room)
                tensors, every = (of_tensors(graph.holds, each, room) for each in (addresses, loose))
                if saved > most * (1 + 1e-9):
                    raise AssertionError((name, size, saved, most))
                rows[size].append((saved, most, saved_alone(graph.holds, room), tensors, every, traffic))
    figures = [summary(size, np.array(found)) for size, found in rows.items()]
    for size, row, of_one in zip(GLB_MIB, figures, np.moveaxis(np.array(ratios), 2, 0), strict=True):
        if row["glb_mib"] != size:
            raise AssertionError(row)
        for name, values in zip(("traffic", "serial_time"), of_one.T, strict=True):
            row[f"{name}_over_none"] = round(float(values.mean()), 4)
            row[f"{name}_over_none_largest"] = round(float(values.max()), 4)
    finish(__file__, {"graphs": num_graphs, "tile_mib": TILE_BYTES / MEBI, "rows": figures}, write=options.write)


def summary(size: int, table: np.ndarray) -> dict[str, float]:
    """Figures of all graphs at one size of the buffer: medians and the worst."""
    saved, most, alone, tensors, every, traffic = table.T
    if not most.any():
        return {"glb_mib": size, "tensors_of_compulsory": 0.0}
    of_most, of_alone = saved / most, saved / alone
    return {
        "glb_mib": size,
        "tensors_of_compulsory": round(float(np.median(tensors / traffic)), 4),
        "saved_of_most": round(float(np.median(of_most)), 4),
        "saved_of_most_tenth": round(float(np.quantile(of_most, 0.1)), 4),
        "saved_of_most_least": round(float(of_most.min()), 4),
        "saved_of_most_in_sum": round(float(saved.sum() / most.sum()), 4),
        "saved_of_each_alone": round(float(np.median(of_alone)), 4),
        "every_schedule_of_tensors_in_sum": round(float(every.sum() / tensors.sum()), 4),
    }


if __name__ == "__main__":
    main()
