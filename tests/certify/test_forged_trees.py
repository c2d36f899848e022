"""Forged proof trees are refused in one sentence with file, row and rule, though every digest is right again."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from forger import Forger
from forger_trees import branching, large_block, leaf, other_pair, put_tree, sharing_pair, valid_tree
from forger_words import (
    in_file,
    refusal,
)

from phaze_opt.certify.certificate import (
    POINTS_FILE,
    POOL_FILE,
)


def tree_with_a_missing_case(forger: Forger) -> str:
    put_tree(forger, lambda vector, pool: valid_tree(vector, pool)[:-1])
    return in_file(POOL_FILE, r"topology \d+, block \d+, entry 0: 1 of its cases are missing")


def tree_with_a_case_too_many(forger: Forger) -> str:
    put_tree(forger, lambda vector, pool: [*valid_tree(vector, pool), leaf(vector)])
    return in_file(POOL_FILE, r"topology \d+, block \d+, entry 0: node 5 belongs to no branching")


def tree_ordering_what_may_overlap(forger: Forger) -> str:
    def make(vector: Any, pool: Any) -> list:
        return [branching("order", *sharing_pair(pool)), leaf(vector), leaf(vector)]

    put_tree(forger, make)
    return in_file(POOL_FILE, r".*entry 0: node 0: operators \d+ and \d+ may overlap: neither is spread there")


def tree_ordering_other_types(forger: Forger) -> str:
    def make(vector: Any, pool: Any) -> list:
        i, j = other_pair(pool)
        return [branching("mode", i), branching("order", i, j), leaf(vector), leaf(vector), leaf(vector)]

    put_tree(forger, make)
    return in_file(POOL_FILE, r".*entry 0: node 1: operators \d+ and \d+ may overlap: they share no core type")


def tree_settling_a_mode_twice(forger: Forger) -> str:
    def make(vector: Any, pool: Any) -> list:
        return [branching("mode", 0), branching("mode", 0), leaf(vector), leaf(vector), leaf(vector)]

    put_tree(forger, make)
    return in_file(POOL_FILE, r".*entry 0: node 1: the mode of operator 0 is settled already")


def tree_of_no_operator(forger: Forger) -> str:
    put_tree(forger, lambda vector, pool: [branching("mode", 99), leaf(vector), leaf(vector)])
    return in_file(POOL_FILE, r".*entry 0: node 0: its operators \(99,\) are not different ones of the block")


def tree_of_two_modes(forger: Forger) -> str:
    put_tree(forger, lambda vector, pool: [branching("mode", 0, 1), leaf(vector), leaf(vector)])
    return in_file(POOL_FILE, r".*entry 0: node 0: branches on the mode of 2 operators")


def tree_of_one_order(forger: Forger) -> str:
    put_tree(forger, lambda vector, pool: [branching("order", 0), leaf(vector), leaf(vector)])
    return in_file(POOL_FILE, r".*entry 0: node 0: branches on the order of 1 operators")


def tree_with_a_vector_in_a_branching(forger: Forger) -> str:
    def make(vector: Any, pool: Any) -> list:
        return [{**branching("mode", 0), "vector": vector}, leaf(vector), leaf(vector)]

    put_tree(forger, make)
    return in_file(POOL_FILE, r".*entry 0: node 0: a branching has no vector")


def tree_with_an_empty_leaf(forger: Forger) -> str:
    put_tree(forger, lambda vector, pool: [branching("mode", 0), leaf(vector), leaf(None)])
    return in_file(POOL_FILE, r".*entry 0: node 2: has no vector though its orders form no cycle")


def tree_with_a_false_vector(forger: Forger) -> str:
    def make(vector: Any, pool: Any) -> list:
        return [branching("mode", 0), leaf(vector), leaf({**vector, "core_multipliers": [1.0, 1.0]})]

    put_tree(forger, make)
    return in_file(POOL_FILE, r".*entry 0: node 2: its sources and core multipliers sum to .*, above 1")


def users_of(pool: Any, kind: str) -> list[int]:
    """Positions in the large block of the operators of one type."""
    topology, _, block = large_block(pool)
    kinds = [pool["topologies"][topology]["core_types"][i] for i in block["operators"]]
    return [position for position, found in enumerate(kinds) if found == kind]


def put_core_tree(forger: Forger, *, users: str, core_type: str, num_cores: int) -> None:
    """A tree that branches on the order of the first two users of a core type."""

    def make(vector: Any, pool: Any) -> list:
        node = branching("cores", *users_of(pool, users)[:2], core_type=core_type, num_cores=num_cores)
        return [node, leaf(vector), leaf(vector)]

    put_tree(forger, make)


def tree_on_too_few_operators(forger: Forger) -> str:
    put_core_tree(forger, users="tc", core_type="tc", num_cores=2)
    return in_file(POOL_FILE, r".*entry 0: node 0: branches on 2 operators and 2 cores")


def tree_on_cores_of_another_type(forger: Forger) -> str:
    put_core_tree(forger, users="vc", core_type="tc", num_cores=1)
    return in_file(POOL_FILE, r".*entry 0: node 0: not all of the operators .* use the core type tc")


def tree_on_cores_of_no_type(forger: Forger) -> str:
    put_core_tree(forger, users="tc", core_type="none", num_cores=1)
    return in_file(POOL_FILE, r".*entry 0: node 0: branches on cores of type 'none'")


def tree_for_fewer_cores(forger: Forger) -> str:
    """A true tree of one tensor core, used for rows with more."""
    put_core_tree(forger, users="tc", core_type="tc", num_cores=1)
    return rf"^{re.escape(POINTS_FILE)}, row \d+: slot \d+ is bounded by a tree that holds for at most"


FORGERIES = (
    tree_with_a_missing_case,
    tree_with_a_case_too_many,
    tree_ordering_what_may_overlap,
    tree_ordering_other_types,
    tree_settling_a_mode_twice,
    tree_of_no_operator,
    tree_of_two_modes,
    tree_of_one_order,
    tree_with_a_vector_in_a_branching,
    tree_with_an_empty_leaf,
    tree_with_a_false_vector,
    tree_on_too_few_operators,
    tree_on_cores_of_another_type,
    tree_on_cores_of_no_type,
    tree_for_fewer_cores,
)


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_a_forgery_is_refused_by_row_and_rule(forge: Callable[[Forger], str], forger: Forger) -> None:
    expected = forge(forger)
    sentence = refusal(forger)
    assert re.match(expected, sentence), sentence
