"""Forged pools are refused with one sentence that names file, row and rule, though every digest is right again."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from forger import Forger
from forger_trees import large_block, sharing_pair
from forger_words import (
    UPPER,
    a_feasible_row_or_full,
    in_file,
    in_points,
    refusal,
)

from phaze_opt.certify.certificate import (
    POINTS_FILE,
    POOL_FILE,
)


def changed_flow(forger: Forger) -> str:
    def change(pool: Any) -> None:
        for topology in pool["topologies"]:
            for block in topology["blocks"]:
                for entry in block["entries"]:
                    for flow in entry["flows"]:
                        flow["flow"] = [value + 0.01 for value in flow["flow"]]

    forger.json(POOL_FILE, change)
    return in_file(POOL_FILE, r"topology \d+, block \d+, entry \d+: its flow does not balance at operator")


def change_first_vector(forger: Forger, change: Callable[[Any], object]) -> str:
    """Change the first entry of the large block that has a flow; where that is."""
    place = []

    def of_pool(pool: Any) -> None:
        topology, number, block = large_block(pool)
        entry = next(e for e, vector in enumerate(block["entries"]) if vector["flows"])
        place.append(f"topology {topology}, block {number}, entry {entry}")
        change(block["entries"][entry])

    forger.json(POOL_FILE, of_pool)
    return place[0]


def prices_above_one(forger: Forger) -> str:
    def change(vector: Any) -> None:
        vector["core_multipliers"] = [value + 0.5 for value in vector["core_multipliers"]]

    where = change_first_vector(forger, change)
    return in_file(POOL_FILE, f"{where}: its sources and core multipliers sum to .*, above 1")


def negative_price(forger: Forger) -> str:
    def change(vector: Any) -> None:
        vector["core_multipliers"] = [-0.5, 0.5]

    where = change_first_vector(forger, change)
    return in_file(POOL_FILE, f"{where}: holds a number that is not finite and at least 0")


def price_not_a_number(forger: Forger) -> str:
    where = change_first_vector(forger, lambda vector: vector.update(core_multipliers=[math.nan, 0.0]))
    return in_file(POOL_FILE, f"{where}: holds a number that is not finite and at least 0")


def swapped_prices(forger: Forger) -> str:
    """Valid prices, but not those that the bounds were worked out with."""

    def change(pool: Any) -> None:
        for topology in pool["topologies"]:
            for block in topology["blocks"]:
                for entry in block["entries"]:
                    entry["core_multipliers"].reverse()
                    entry["flows"][1:] = entry["flows"][:0:-1]

    forger.json(POOL_FILE, change)
    return rf"^{re.escape(POINTS_FILE)}, row \d+: {UPPER} is .* but its multipliers give"


def lost_flow(forger: Forger) -> str:
    where = change_first_vector(forger, lambda vector: vector["flows"].pop())
    return in_file(POOL_FILE, f"{where}: has 2 flows under type exclusivity")


def short_flow(forger: Forger) -> str:
    where = change_first_vector(forger, lambda vector: vector["flows"][0]["flow"].pop())
    return in_file(POOL_FILE, f"{where}: a flow lists .* operators and .* arcs, not")


def false_arc(forger: Forger) -> str:
    place = []

    def change(pool: Any) -> None:
        topology, number, block = large_block(pool)
        block["arcs"][0].reverse()
        place.append(f"topology {topology}, block {number}")

    forger.json(POOL_FILE, change)
    return in_file(POOL_FILE, rf"{place[0]}: arc \(\d+, \d+\) is no precedence")


def false_arc_of_a_vector(forger: Forger) -> str:
    place = []

    def change(pool: Any) -> None:
        topology, number, block = large_block(pool)
        block["entries"][0]["arcs"] = [list(reversed(arc)) for arc in block["arcs"]]
        place.append(f"topology {topology}, block {number}, entry 0")

    forger.json(POOL_FILE, change)
    return in_file(POOL_FILE, rf"{place[0]}: arc \(\d+, \d+\) is no precedence")


def topology_of_no_graph(forger: Forger) -> str:
    """An edge more: more precedence gives higher bounds."""

    def change(pool: Any) -> None:
        topology, _, block = large_block(pool)
        i, j = sharing_pair(pool)
        pool["topologies"][topology]["edges"].append([block["operators"][i], block["operators"][j]])

    forger.json(POOL_FILE, change)
    return in_file(POOL_FILE, "no topology is that of a graph of")


def edge_to_nowhere(forger: Forger) -> str:
    forger.json(POOL_FILE, lambda pool: pool["topologies"][0]["edges"].append([0, 999]))
    return in_file(POOL_FILE, "topology 0 has an edge to no operator")


def cyclic_edges(forger: Forger) -> str:
    def change(pool: Any) -> None:
        topology, _, _ = large_block(pool)
        edges = pool["topologies"][topology]["edges"]
        edges.append(list(reversed(edges[0])))

    forger.json(POOL_FILE, change)
    return in_file(POOL_FILE, r"topology \d+ has a cycle of edges")


def topology_twice(forger: Forger) -> str:
    forger.json(POOL_FILE, lambda pool: pool["topologies"].append(pool["topologies"][0]))
    return in_file(POOL_FILE, "lists a topology twice")


def split_block(forger: Forger) -> str:
    """A block split into single operators would add their times up."""

    def change(pool: Any) -> None:
        topology, number, block = large_block(pool)
        singles = [{"operators": [i], "arcs": [], "entries": []} for i in block["operators"]]
        pool["topologies"][topology]["blocks"][number : number + 1] = singles

    forger.json(POOL_FILE, change)
    return in_file(POOL_FILE, r"an operator of block \d+ of topology \d+ does not precede all of the next block")


def operator_in_two_blocks(forger: Forger) -> str:
    def change(pool: Any) -> None:
        topology, _, block = large_block(pool)
        single = {"operators": block["operators"][:1], "arcs": [], "entries": []}
        pool["topologies"][topology]["blocks"].append(single)

    forger.json(POOL_FILE, change)
    return in_file(POOL_FILE, r"the blocks of topology \d+ do not hold each operator once")


def single_with_entries(forger: Forger) -> str:
    def change(pool: Any) -> None:
        _, _, large = large_block(pool)
        block = next(b for topology in pool["topologies"] for b in topology["blocks"] if len(b["operators"]) == 1)
        block["entries"] = large["entries"]

    forger.json(POOL_FILE, change)
    return in_file(POOL_FILE, r"topology \d+, block \d+ has one operator but arcs or entries")


def entry_out_of_range(forger: Forger) -> str:
    forger.multipliers(lambda tables: [table.__setitem__((slice(None), 2), 999) for table in tables.values()])
    return in_points(a_feasible_row_or_full(forger), r"slot 2 names entry 999 of \d+")


FORGERIES = (
    changed_flow,
    prices_above_one,
    negative_price,
    price_not_a_number,
    swapped_prices,
    lost_flow,
    short_flow,
    false_arc,
    false_arc_of_a_vector,
    topology_of_no_graph,
    edge_to_nowhere,
    cyclic_edges,
    topology_twice,
    split_block,
    operator_in_two_blocks,
    single_with_entries,
    entry_out_of_range,
)


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_a_forgery_is_refused_by_row_and_rule(forge: Callable[[Forger], str], forger: Forger) -> None:
    expected = forge(forger)
    sentence = refusal(forger)
    assert re.match(expected, sentence), sentence
