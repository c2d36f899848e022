"""Forgeries of what proves bounds and of the solutions that attain."""

from collections.abc import Callable
from typing import Any

import numpy as np
from draft import CLEAR, Draft, Forgery, need
from forger import ATTAINED

from phaze_opt.certify.certificate import POOL_FILE, SOLUTIONS_FILE


def named(change: Callable[..., object], forgery: Forgery) -> Forgery:
    """A forgery called by what it changes."""
    forgery.__name__ = change.__name__
    return forgery


def each_block(pool: Any) -> list[tuple[Any, Any]]:
    """Topologies with each of their blocks of several operators."""
    return [(topology, block) for topology in pool["topologies"] for block in topology["blocks"] if block["entries"]]


def with_pool(change: Callable[[Draft, Any, Any], object]) -> Forgery:
    """A change of a block with entries."""

    return named(change, lambda draft: draft.json(POOL_FILE, lambda pool: change(draft, *draft.pick(each_block(pool)))))


def with_vector(change: Callable[[Draft, Any, Any], object]) -> Forgery:
    """A change of a vector, of a leaf or of a search, given its block."""

    def of_block(draft: Draft, _: Any, block: Any) -> None:
        entry = draft.pick(block["entries"])
        leaves = [node["vector"] for node in entry.get("nodes", ()) if node["vector"] is not None]
        change(draft, draft.pick(leaves or entry.get("vectors") or ([entry] if "flows" in entry else [])), block)

    return named(change, with_pool(of_block))


def prices_above_one(draft: Draft, vector: Any, _: Any) -> None:
    total = sum(vector["core_multipliers"]) + sum(sum(flow["source"]) for flow in vector["flows"])
    need(total > 0.0)
    factor = (1.0 + CLEAR + draft.share()) / total
    vector["core_multipliers"] = [value * factor for value in vector["core_multipliers"]]
    for flow in vector["flows"]:
        for name in ("source", "sink", "flow"):
            flow[name] = [value * factor for value in flow[name]]


def more_on_cores(draft: Draft, vector: Any, _: Any) -> None:
    total = sum(vector["core_multipliers"]) + sum(sum(flow["source"]) for flow in vector["flows"])
    vector["core_multipliers"][draft.rng.randrange(2)] += max(1.0 - total, 0.0) + CLEAR + draft.share()


def flow_from_nothing(draft: Draft, vector: Any, _: Any) -> None:
    flow = draft.pick(vector["flows"])
    name = draft.rng.choice([name for name in ("sink", "flow") if flow[name]])
    flow[name][draft.rng.randrange(len(flow[name]))] += CLEAR + draft.share()


def a_negative_price(draft: Draft, vector: Any, _: Any) -> None:
    vector["core_multipliers"] = [-draft.share(), 0.0]


def a_false_arc(draft: Draft, _: Any, block: Any) -> None:
    draft.pick(block["arcs"]).reverse()


def a_missing_edge(draft: Draft, topology: Any, _: Any) -> None:
    topology["edges"].remove(draft.pick(topology["edges"]))


def one_more_edge(draft: Draft, topology: Any, _: Any) -> None:
    count = len(topology["core_types"])
    edges = [tuple(edge) for edge in topology["edges"]]
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count) if (i, j) not in edges]
    topology["edges"].append(list(draft.pick(pairs)))


def another_core_type(draft: Draft, topology: Any, block: Any) -> None:
    operator = draft.pick(block["operators"])
    kind = topology["core_types"][operator]
    topology["core_types"][operator] = draft.pick({"tc", "vc"} - {kind})


def an_operator_less(draft: Draft, _: Any, block: Any) -> None:
    block["operators"].remove(draft.pick(block["operators"]))


def operators_in_another_order(draft: Draft, _: Any, block: Any) -> None:
    """Reversed: arcs run against the order of operators then."""
    need(block["arcs"])
    block["operators"].reverse()


def blocks_apart(draft: Draft, topology: Any, block: Any) -> None:
    """Times of blocks add up, so what may overlap stands one after the other."""
    number = topology["blocks"].index(block)
    singles = [{"operators": [each], "arcs": [], "entries": []} for each in block["operators"]]
    topology["blocks"][number : number + 1] = singles


def a_tree_of_half_the_cases(draft: Draft, _: Any, block: Any) -> None:
    """Only one mode of an operator is looked at."""
    vector = draft.pick(entry for entry in block["entries"] if "flows" in entry)
    node = {"branching": "mode", "operators": [0], "core_type": "none", "num_cores": 0, "vector": None}
    leaf = {"branching": "leaf", "operators": [], "core_type": "none", "num_cores": 0, "vector": vector}
    block["entries"][block["entries"].index(vector)] = {"nodes": [node, leaf]}


def a_search_that_found_nothing(draft: Draft, _: Any, block: Any) -> None:
    """A makespan that no schedule undercuts, though all operators one after the other do."""
    size = len(block["operators"])
    latencies = [draft.rng.uniform(1e-6, 1e-3) for _ in range(size)]
    entry = {
        "num_cores": [4, 4], "one_core_s": [4.0 * each for each in latencies], "spread_s": latencies,
        "makespan_s": sum(latencies) * (1.0 + CLEAR + draft.share()), "vectors": [],
    }  # fmt: skip
    block["entries"][draft.rng.randrange(len(block["entries"]))] = entry


def with_table(change: Callable[[Draft, dict[str, Any], str], object]) -> Forgery:
    """A change of the tables, given the name of one that rows name."""

    def of_file(draft: Draft) -> None:
        batches = zip(draft.rows["micro_batch"], draft.rows["multipliers_index"], strict=True)
        names = {f"mb{batch}" for batch, index in batches if index >= 0}
        draft.multipliers(lambda tables: change(draft, tables, draft.pick(sorted(names))))

    return named(change, of_file)


def no_such_entry(draft: Draft, tables: dict[str, Any], name: str) -> None:
    need(tables[name].shape[1])
    tables[name][:, draft.rng.randrange(tables[name].shape[1])] = draft.rng.choice((-1, 1_000_000, 2**31 - 1))


def rows_gone(draft: Draft, tables: dict[str, Any], name: str) -> None:
    used = [
        index
        for batch, index in zip(draft.rows["micro_batch"], draft.rows["multipliers_index"], strict=True)
        if f"mb{batch}" == name
    ]
    tables[name] = tables[name][: draft.rng.randrange(max(used) + 1)]


def a_slot_less(draft: Draft, tables: dict[str, Any], name: str) -> None:
    number = draft.pick(range(tables[name].shape[1]))
    tables[name] = np.delete(tables[name], number, axis=1)


def a_table_less(_: Draft, tables: dict[str, Any], name: str) -> None:
    del tables[name]


def another_name(_: Draft, tables: dict[str, Any], name: str) -> None:
    tables[f"{name}0"] = tables.pop(name)


def no_whole_numbers(draft: Draft, tables: dict[str, Any], name: str) -> None:
    tables[name] = tables[name].astype(draft.rng.choice(("f8", "i8", "u4")))


def more_rows_than_points(_: Draft, tables: dict[str, Any], name: str) -> None:
    tables[name] = np.repeat(tables[name], 1 + 1000 // max(len(tables[name]), 1), axis=0)


def other_entries(draft: Draft) -> None:
    """Of one design, whose bound goes below what it attains."""
    row = draft.pick(draft.pruned or draft.solved)
    place, name = draft.rows["multipliers_index"][row], f"mb{draft.rows['micro_batch'][row]}"

    def change(tables: dict[str, Any]) -> None:
        need(tables[name].size)
        slot = draft.rng.randrange(tables[name].shape[1])
        tables[name][place, slot] = draft.pick(sorted(set(tables[name][:, slot].tolist())))

    draft.multipliers(change)
    draft.below(row)


def columns_swapped(draft: Draft) -> None:
    """Of all designs, of which one's bound goes below what it attains."""
    row = draft.pick(draft.pruned or draft.solved)

    def change(tables: dict[str, Any]) -> None:
        for table in tables.values():
            need(table.shape[1] > 1)
            table[:] = np.roll(table, 1, axis=1)

    draft.multipliers(change)
    draft.below(row)


def long_schedule(draft: Draft, model: Any) -> Any:
    """A schedule in which something waits."""
    parts = [part["schedule"] for part in model.get("fusion", {}).get("parts", ())]
    return draft.pick(each for each in [*model["schedules"], *parts] if max(each["start_s"], default=0.0) > 0.0)


def squeezed(draft: Draft) -> None:
    def change(model: Any) -> None:
        schedule = long_schedule(draft, model)
        less = 1.0 - 1e-4 - draft.share(-4.0, -0.1)
        schedule["start_s"] = [start * less for start in schedule["start_s"]]

    draft.solve(change)


def begun_at_once(draft: Draft) -> None:
    def change(model: Any) -> None:
        schedule = long_schedule(draft, model)
        schedule["start_s"] = [0.0] * len(schedule["start_s"])

    draft.solve(change)


def begun_before(draft: Draft) -> None:
    def change(model: Any) -> None:
        starts = draft.pick(model["schedules"])["start_s"]
        starts[starts.index(min(starts))] = -draft.share()

    draft.solve(change)


def lied_of(change: Callable[[Draft, Any], object]) -> Forgery:
    """A change of a solution, said to attain more than is possible."""
    return named(change, lambda draft: draft.lie(draft.solve(lambda model: change(draft, model))))


def other_modes(draft: Draft, model: Any) -> None:
    schedule = draft.pick(model["schedules"])
    schedule["is_spread"] = [not mode for mode in schedule["is_spread"]]


def more_replicas(_: Draft, model: Any) -> None:
    if "plan" in model:
        model["plan"]["plan"]["data"] *= 2
    else:
        model["data_parallel"] *= 2


def other_recomputation(_: Draft, model: Any) -> None:
    for stage in model["stages"]:
        stage["is_recomputed"] = not stage["is_recomputed"]
    if "plan" in model:
        others = {"none": "full", "selective": "none", "full": "none"}
        model["plan"]["recompute"] = [others[each] for each in model["plan"]["recompute"]]
        model["plan"]["plan"]["recompute"] = others[model["plan"]["plan"]["recompute"]]


def a_schedule_less(draft: Draft) -> None:
    draft.solve(lambda model: model["schedules"].remove(draft.pick(model["schedules"])))


def a_schedule_twice(draft: Draft) -> None:
    draft.solve(lambda model: model["schedules"].append(draft.pick(model["schedules"])))


def a_layer_less(draft: Draft) -> None:
    def change(model: Any) -> None:
        if "plan" in model:
            model["plan"]["blocks"][draft.rng.randrange(len(model["plan"]["blocks"]))] += draft.rng.choice((-1, 1))
        else:
            draft.pick(model["stages"])["last"] -= 1

    draft.solve(change)


def degrees_of_no_plan(draft: Draft) -> None:
    def change(model: Any) -> None:
        if "plan" in model:
            model["plan"]["plan"][draft.rng.choice(("micro_batch", "tensor", "pipeline"))] *= 7
        else:
            model["tensor_parallel"] *= 7

    draft.solve(change)


def a_solution_less(draft: Draft) -> None:
    draft.json(SOLUTIONS_FILE, lambda data: data["solutions"].remove(draft.pick(data["solutions"])))


def of_another_row(draft: Draft) -> None:
    row = draft.pick(draft.pruned)
    number = draft.rng.randrange(len(draft.solutions))

    def change(data: Any) -> None:
        data["solutions"][number]["index"] = row
        data["solutions"].sort(key=lambda each: each["index"])

    draft.json(SOLUTIONS_FILE, change)


def solutions_swapped(draft: Draft) -> None:
    need(len(draft.solutions) > 1)
    one, other = draft.rng.sample(range(len(draft.solutions)), 2)
    attained = [draft.rows[ATTAINED][draft.solutions[each]["index"]] for each in (one, other)]
    need(abs(attained[0] / attained[1] - 1.0) > CLEAR)

    def change(data: Any) -> None:
        first, second = data["solutions"][one], data["solutions"][other]
        first["models"], second["models"] = second["models"], first["models"]

    draft.json(SOLUTIONS_FILE, change)


def a_model_more(draft: Draft) -> None:
    number = draft.rng.randrange(len(draft.solutions))
    draft.json(SOLUTIONS_FILE, lambda data: data["solutions"][number]["models"].append(draft.solutions[0]["models"][0]))


def with_groups(change: Callable[[Draft, Any], object]) -> Forgery:
    """A change of a model whose layers run in groups."""

    def of_model(draft: Draft, model: Any) -> None:
        need(model.get("fusion"))
        change(draft, model["fusion"])

    return named(change, lambda draft: draft.solve(lambda model: of_model(draft, model)))


def grouped(draft: Draft, fusion: Any) -> Any:
    """A group of several layers."""
    return draft.pick(group for run in fusion["runs"] for group in run["groups"] if group["num_layers"] > 1)


def no_reserve(draft: Draft, fusion: Any) -> None:
    """Though a tensor lies in it from each layer to the next."""
    grouped(draft, fusion)["reserved_bytes"] = draft.rng.choice((0, -1, 64))


def a_group_of_fewer(draft: Draft, fusion: Any) -> None:
    grouped(draft, fusion)["num_layers"] += draft.rng.choice((-1, 1))


def parts_of_no_whole(draft: Draft, fusion: Any) -> None:
    grouped(draft, fusion)["num_parts"] = draft.rng.choice((0, 3, 5, 64))


def a_run_twice(draft: Draft, fusion: Any) -> None:
    need(fusion["runs"])
    fusion["runs"].append(draft.pick(fusion["runs"]))


def a_run_of_no_chunk(draft: Draft, fusion: Any) -> None:
    draft.pick(fusion["runs"]).update(draft.rng.choice(({"chunk": 9}, {"chunk": -1}, {"phase": "update"})))


def parts_gone(draft: Draft, fusion: Any) -> None:
    """How the layers of a group run is not said."""
    grouped(draft, fusion)
    fusion["parts"] = []


def one_more_part(draft: Draft, fusion: Any) -> None:
    fusion["parts"].append(draft.pick(fusion["parts"]))


POOLS: tuple[Forgery, ...] = (
    *map(with_vector, (prices_above_one, more_on_cores, flow_from_nothing, a_negative_price)),
    *map(with_pool, (
        a_false_arc, a_missing_edge, one_more_edge, another_core_type, an_operator_less, operators_in_another_order,
        blocks_apart, a_tree_of_half_the_cases, a_search_that_found_nothing,
    )),
)  # fmt: skip
MULTIPLIERS: tuple[Forgery, ...] = (
    *map(with_table, (
        no_such_entry, rows_gone, a_slot_less, a_table_less, another_name, no_whole_numbers, more_rows_than_points,
    )),
    other_entries, columns_swapped,
)  # fmt: skip
SOLUTIONS: tuple[Forgery, ...] = (
    squeezed, begun_at_once, begun_before, *map(lied_of, (other_modes, more_replicas, other_recomputation)),
    a_schedule_less, a_schedule_twice, a_layer_less, degrees_of_no_plan, a_solution_less, of_another_row,
    solutions_swapped, a_model_more,
    *map(with_groups, (
        no_reserve, a_group_of_fewer, parts_of_no_whole, a_run_twice, a_run_of_no_chunk, parts_gone, one_more_part,
    )),
)  # fmt: skip
