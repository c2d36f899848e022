"""Proof trees put in place of vectors, and trees that do not prove."""

from typing import Any

from forger import Forger

from phaze_opt.certify.certificate import POOL_FILE

LEAF = {"operators": [], "core_type": "none", "num_cores": 0}


def leaf(vector: Any) -> dict[str, Any]:
    return {**LEAF, "branching": "leaf", "vector": vector}


def branching(kind: str, *operators: int, core_type: str = "none", num_cores: int = 0) -> dict[str, Any]:
    return {
        "branching": kind,
        "operators": list(operators),
        "core_type": core_type,
        "num_cores": num_cores,
        "vector": None,
    }


def large_block(pool: Any) -> tuple[int, int, Any]:
    """Topology and number of the block with most operators, and the block."""
    return max(
        ((t, b, block) for t, topology in enumerate(pool["topologies"]) for b, block in enumerate(topology["blocks"])),
        key=lambda found: len(found[2]["operators"]),
    )


def kinds_of(pool: Any) -> list[str]:
    """Core types of the operators of the large block."""
    topology, _, block = large_block(pool)
    return [pool["topologies"][topology]["core_types"][i] for i in block["operators"]]


def users_of(pool: Any, kind: str) -> list[int]:
    """Positions in the large block of the operators of one type."""
    return [position for position, found in enumerate(kinds_of(pool)) if found == kind]


def sharing_pair(pool: Any) -> tuple[int, int]:
    """Two operators of the large block that may overlap and share a core type; positions in the block."""
    kinds = kinds_of(pool)
    ordered = reachable(len(kinds), large_block(pool)[2]["arcs"])
    pairs = [
        (i, j)
        for i in range(len(kinds))
        for j in range(i + 1, len(kinds))
        if kinds[i] == kinds[j] and (i, j) not in ordered and (j, i) not in ordered
    ]
    return pairs[0]


def other_pair(pool: Any) -> tuple[int, int]:
    """Two operators of the large block without a core type in common."""
    return kinds_of(pool).index("tc"), kinds_of(pool).index("vc")


def reachable(count: int, arcs: list[list[int]]) -> set[tuple[int, int]]:
    found = {tuple(arc) for arc in arcs}
    for _ in range(count):
        found |= {(a, d) for a, b in found for c, d in found if b == c}
    return found


def put_tree(forger: Forger, make: Any) -> None:
    """Replace the first entry of the large block, a vector, by the nodes that ``make`` makes of it."""

    def change(pool: Any) -> None:
        _, _, block = large_block(pool)
        vector = block["entries"][0]
        block["entries"][0] = {"nodes": make(vector, pool)}

    forger.json(POOL_FILE, change)


def valid_tree(vector: Any, pool: Any) -> list[dict[str, Any]]:
    """Cases that cover all schedules, each with the same vector: bounds what the vector bounds."""
    i, j = sharing_pair(pool)
    return [branching("mode", i), branching("order", i, j), leaf(vector), leaf(vector), leaf(vector)]
