"""Forged pools, vectors and proof trees, are refused by file and rule, though every digest is right again."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from forger import ANY, RECOMPUTED, Forger
from forger_trees import branching, large_block, leaf, other_pair, put_tree, sharing_pair, users_of, valid_tree

from phaze_opt.certify.certificate import POINTS_FILE, POOL_FILE

NOT_A_PRICE = "holds a number that is not finite and at least 0"
MAY_OVERLAP = r"operators \d+ and \d+ may overlap"


def raise_multipliers(vector: Any) -> None:
    vector["core_multipliers"] = [value + 0.5 for value in vector["core_multipliers"]]


VECTORS = {
    "above one": (raise_multipliers, "its sources and core multipliers sum to .*, above 1"),
    "negative": (lambda vector: vector.update(core_multipliers=[-0.5, 0.5]), NOT_A_PRICE),
    "not a number": (lambda vector: vector.update(core_multipliers=[math.nan, 0.0]), NOT_A_PRICE),
    "lost flow": (lambda vector: vector["flows"].pop(), "has 2 flows under type exclusivity"),
    "short flow": (lambda v: v["flows"][0]["flow"].pop(), "a flow lists .* operators and .* arcs, not"),
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_forged_vector_is_refused(name: str, forger: Forger) -> None:
    change, rule = VECTORS[name]
    pool = forger.read(POOL_FILE)
    topology, number, block = large_block(pool)
    entry = next(e for e, vector in enumerate(block["entries"]) if vector["flows"])
    forger.json(POOL_FILE, lambda data: change(large_block(data)[2]["entries"][entry]))
    forger.assert_refused(POOL_FILE, f"topology {topology}, block {number}, entry {entry}: {rule}")


def of_all_entries(change: Callable[[Any], object]) -> Callable[[Any], None]:
    def of_pool(pool: Any) -> None:
        for topology in pool["topologies"]:
            for block in topology["blocks"]:
                for entry in block["entries"]:
                    change(entry)

    return of_pool


def swap_types(entry: Any) -> None:
    entry["core_multipliers"].reverse()
    entry["flows"][1:] = entry["flows"][:0:-1]


def raise_flows(entry: Any) -> None:
    for flow in entry["flows"]:
        flow["flow"] = [value + 0.01 for value in flow["flow"]]


def reverse_an_arc(pool: Any) -> None:
    large_block(pool)[2]["arcs"][0].reverse()


def reverse_arcs_of_a_vector(pool: Any) -> None:
    block = large_block(pool)[2]
    block["entries"][0]["arcs"] = [list(reversed(arc)) for arc in block["arcs"]]


def add_an_edge(pool: Any) -> None:
    """More precedence gives higher bounds."""
    topology, _, block = large_block(pool)
    i, j = sharing_pair(pool)
    pool["topologies"][topology]["edges"].append([block["operators"][i], block["operators"][j]])


def close_a_cycle(pool: Any) -> None:
    edges = pool["topologies"][large_block(pool)[0]]["edges"]
    edges.append(list(reversed(edges[0])))


def split_a_block(pool: Any) -> None:
    """Times of blocks add up."""
    topology, number, block = large_block(pool)
    singles = [{"operators": [i], "arcs": [], "entries": []} for i in block["operators"]]
    pool["topologies"][topology]["blocks"][number : number + 1] = singles


def repeat_an_operator(pool: Any) -> None:
    topology, _, block = large_block(pool)
    single = {"operators": block["operators"][:1], "arcs": [], "entries": []}
    pool["topologies"][topology]["blocks"].append(single)


def bound_a_single_operator(pool: Any) -> None:
    block = next(b for topology in pool["topologies"] for b in topology["blocks"] if len(b["operators"]) == 1)
    block["entries"] = large_block(pool)[2]["entries"]


POOLS = {
    "changed flow": (of_all_entries(raise_flows), ".* entry .*: its flow does not balance at operator"),
    "false arc": (reverse_an_arc, r"topology \d+, block \d+: arc \(\d+, \d+\) is no precedence"),
    "false arc of a vector": (reverse_arcs_of_a_vector, r".* entry 0: arc \(\d+, \d+\) is no precedence"),
    "no graph's": (add_an_edge, "no topology is that of a graph of"),
    "edge to nowhere": (
        lambda p: p["topologies"][0]["edges"].append([0, 999]),
        "topology 0 has an edge to no operator",
    ),
    "cycle": (close_a_cycle, r"topology \d+ has a cycle of edges"),
    "twice": (lambda pool: pool["topologies"].append(pool["topologies"][0]), "lists a topology twice"),
    "split block": (split_a_block, r"an operator of block \d+ of topology \d+ does not precede all of the next block"),
    "operator twice": (repeat_an_operator, r"the blocks of topology \d+ do not hold each operator once"),
    "single": (bound_a_single_operator, r"topology \d+, block \d+ has one operator but entries"),
}


@pytest.mark.parametrize("name", POOLS)
def test_a_forged_topology_is_refused(name: str, forger: Forger) -> None:
    change, rule = POOLS[name]
    forger.json(POOL_FILE, change)
    forger.assert_refused(POOL_FILE, rule)


def test_valid_prices_are_not_those_that_bounds_were_worked_out_with(forger: Forger) -> None:
    forger.json(POOL_FILE, of_all_entries(swap_types))
    forger.assert_refused(POINTS_FILE, RECOMPUTED, row=ANY)


def test_an_entry_out_of_range_is_refused(forger: Forger) -> None:
    forger.multipliers(lambda tables: [table.__setitem__((slice(None), 2), 999) for table in tables.values()])
    columns = forger.columns()
    # The first HBM capacity and micro-batch are checked first.
    row = next(row for row in columns["index"] if row % 6 == 0 and columns["bound"][row] != "none")
    forger.assert_refused(POINTS_FILE, r"slot 2 names entry 999 of \d+", row=row)


def on_cores(vector: Any, pool: Any, users: str, core_type: str, num_cores: int) -> list:
    """A tree that branches on the order of the first two users of a core type."""
    node = branching("cores", *users_of(pool, users)[:2], core_type=core_type, num_cores=num_cores)
    return [node, leaf(vector), leaf(vector)]


def other_types(vector: Any, pool: Any) -> list:
    i, j = other_pair(pool)
    return [branching("mode", i), branching("order", i, j), leaf(vector), leaf(vector), leaf(vector)]


def mode(*nodes: Callable[[Any], Any]) -> Callable[[Any, Any], list]:
    """A branching on the mode of operator 0 with these nodes below it."""
    return lambda vector, pool: [branching("mode", 0), *(node(vector) for node in nodes)]


TREES = {
    "missing case": (lambda v, pool: valid_tree(v, pool)[:-1], "1 of its cases are missing"),
    "case too many": (lambda v, pool: [*valid_tree(v, pool), leaf(v)], "node 5 belongs to no branching"),
    "orders what may overlap": (
        lambda v, pool: [branching("order", *sharing_pair(pool)), leaf(v), leaf(v)],
        f"node 0: {MAY_OVERLAP}: neither is spread there",
    ),
    "orders other types": (other_types, f"node 1: {MAY_OVERLAP}: they share no core type"),
    "mode twice": (
        mode(lambda _: branching("mode", 0), leaf, leaf, leaf),
        "node 1: the mode of operator 0 is settled already",
    ),
    "no operator": (
        lambda v, _: [branching("mode", 99), leaf(v), leaf(v)],
        r"node 0: its operators \(99,\) are not different ones of the block",
    ),
    "two modes": (
        lambda v, _: [branching("mode", 0, 1), leaf(v), leaf(v)],
        "node 0: branches on the mode of 2 operators",
    ),
    "one order": (
        lambda v, _: [branching("order", 0), leaf(v), leaf(v)],
        "node 0: branches on the order of 1 operators",
    ),
    "vector in a branching": (
        lambda v, _: [{**branching("mode", 0), "vector": v}, leaf(v), leaf(v)],
        "node 0: a branching has no vector",
    ),
    "empty leaf": (mode(leaf, lambda _: leaf(None)), "node 2: has no vector though its orders form no cycle"),
    "false vector": (
        mode(leaf, lambda v: leaf({**v, "core_multipliers": [1.0, 1.0]})),
        "node 2: its sources and core multipliers sum to .*, above 1",
    ),
    "too few operators": (
        lambda v, pool: on_cores(v, pool, "tc", "tc", 2),
        "node 0: branches on 2 operators and 2 cores",
    ),
    "cores of another type": (
        lambda v, pool: on_cores(v, pool, "vc", "tc", 1),
        "node 0: not all of the operators .* use the core type tc",
    ),
    "cores of no type": (
        lambda v, pool: on_cores(v, pool, "tc", "none", 1),
        "node 0: branches on cores of type 'none'",
    ),
}


@pytest.mark.parametrize("name", TREES)
def test_a_forged_tree_is_refused(name: str, forger: Forger) -> None:
    make, rule = TREES[name]
    put_tree(forger, make)
    forger.assert_refused(POOL_FILE, rf"topology \d+, block \d+, entry 0: {rule}")


def test_a_true_tree_of_one_tensor_core_does_not_hold_for_more(forger: Forger) -> None:
    put_tree(forger, lambda vector, pool: on_cores(vector, pool, "tc", "tc", 1))
    forger.assert_refused(POINTS_FILE, r"slot \d+ is bounded by a tree that holds for at most", row=ANY)
