"""Searches in certificates: accepted exactly where brute force agrees, and forged ones refused by their rule."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forger import ANY, RECOMPUTED, Forger
from hypothesis import given, settings
from kits.schedulers import brute_force_makespan, random_problem
from test_check_prices import RULES, SEEDS, lower_of, random_vector, shape_of
from test_prove_files import type_problem

from phaze_opt.certify import point_proof
from phaze_opt.certify.certificate import POINTS_FILE, POOL_FILE, SearchEntry
from phaze_opt.certify.check import searches
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.check.searches import PricedSearch, price_search
from phaze_opt.certify.problem import CertifyOptions
from phaze_opt.certify.prove import certify
from phaze_opt.graph.operator import CoreType


def on_cores_only(seed: int, **kind: Any) -> Any:
    """A drawn problem whose operators all take cores, as those of blocks do."""
    while CoreType.NONE in (problem := random_problem(seed, **kind)).core_types:
        seed += 1
    return problem


def entry_of(problem: Any, makespan_s: float, vectors: tuple = ()) -> SearchEntry:
    cores = (problem.cores.tc, problem.cores.vc)
    return SearchEntry(cores, problem.one_core_s, problem.spread_s, makespan_s, vectors)


@given(seed=SEEDS, exclusivity=RULES)
@settings(max_examples=60, deadline=None)
def test_a_search_is_accepted_exactly_up_to_the_optimum(seed, exclusivity):
    """Whatever vectors cut it, those of no use among them."""
    problem = on_cores_only(seed % 10_000, num_operators=5, exclusivity=exclusivity)
    rng, shape = np.random.default_rng(seed), shape_of(problem)
    vectors = tuple(random_vector(rng, shape) for _ in range(int(rng.integers(3))))
    best = brute_force_makespan(problem)
    priced = price_search(entry_of(problem, best * (1.0 - 1e-9), vectors), shape)
    assert isinstance(priced, PricedSearch)
    assert lower_of(priced, problem) == pytest.approx(best, rel=2e-9)
    refused = price_search(entry_of(problem, best * (1.0 + 1e-9), vectors), shape)
    assert refused == f"a schedule takes {best:.9g} s, less than {best * (1.0 + 1e-9):.9g} s"


@given(seed=SEEDS, exclusivity=RULES)
@settings(max_examples=40, deadline=None)
def test_a_search_bounds_designs_of_other_latencies(seed, exclusivity):
    problem = on_cores_only(seed % 10_000, num_operators=4, exclusivity=exclusivity)
    rng = np.random.default_rng(seed)
    stretched = [
        tuple((np.array(values) * rng.uniform(0.4, 2.0, size=len(values))).tolist())
        for values in (problem.one_core_s, problem.spread_s)
    ]
    other = type(problem)(problem.core_types, *stretched, problem.edges, problem.cores, exclusivity)
    priced = price_search(entry_of(problem, brute_force_makespan(problem) * (1.0 - 1e-9)), shape_of(problem))
    assert isinstance(priced, PricedSearch)
    assert 0.0 < lower_of(priced, other) <= brute_force_makespan(other) * (1.0 + 1e-9)


def test_a_search_that_is_too_long_proves_nothing(monkeypatch):
    problem = on_cores_only(3, num_operators=6)
    monkeypatch.setattr(searches, "MAX_STATES", 5)
    fault = price_search(entry_of(problem, brute_force_makespan(problem) * 0.999), shape_of(problem))
    assert fault == "its search takes more than 5 partial schedules"


@pytest.mark.parametrize("seconds", [5e-324, 1e-320, 1e-200, 1e-31, 1e31, float("inf"), float("nan")])
def test_numbers_whose_ratios_overflow_prove_nothing(seconds):
    """A makespan of the least number there is would bound any schedule by infinity."""
    problem = on_cores_only(3, num_operators=4)
    entry = entry_of(problem, 1.0)
    tiny = replace(entry, one_core_s=(seconds,) * 4, spread_s=(seconds,) * 4, makespan_s=seconds)
    assert price_search(tiny, shape_of(problem)) == "holds a latency or makespan that is not from 1e-30 to 1e+30 s"


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate whose proof may not grow trees, so that it searches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(point_proof, "TREE_NODES", (1, 1, 1))
        options = CertifyOptions(tolerance=0.0, num_best=4, directory=tmp_path_factory.mktemp("searched"))
        result = certify(type_problem(), options)
    assert result.certificate.claim.is_proved
    return result.directory


@pytest.fixture
def forger(searched: Path, tmp_path: Path) -> Forger:
    return Forger(searched, tmp_path / "forged")


def search_of(pool: Any) -> Any:
    """The first search of a pool."""
    blocks = [block for topology in pool["topologies"] for block in topology["blocks"]]
    return next(entry for block in blocks for entry in block["entries"] if "makespan_s" in entry)


def test_a_proof_by_searches_is_accepted(searched):
    report = check_certificate(searched)
    assert report.num_searches > 0
    assert report.num_trees == 0


def scale(name: str, factor: float) -> Any:
    def change(entry: Any) -> None:
        entry[name] = [factor * each for each in entry[name]] if isinstance(entry[name], list) else factor * entry[name]

    return change


FORGED = {
    "more than the optimum": (scale("makespan_s", 1.01), "a schedule takes .* s, less than .* s"),
    "shorter latencies": (scale("one_core_s", 0.5), "a schedule takes .* s, less than .* s"),
    "no cores": (lambda e: e.update(num_cores=[0, 1]), r"is on \(0, 1\) cores"),
    "no length": (lambda e: e["spread_s"].__setitem__(0, 0.0), "holds a latency or makespan that is not from"),
    "not a number": (lambda e: e.update(makespan_s=math.nan), "holds a latency or makespan that is not from"),
    "too few": (lambda e: e["one_core_s"].pop(), r"lists \d+ and \d+ latencies, not \d+"),
    "false vector": (
        lambda e: e["vectors"][0].update(core_multipliers=[1.0, 1.0]),
        "vector 0: its sources and core multipliers sum to .*, above 1",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_search_is_refused(name: str, forger: Forger) -> None:
    change, rule = FORGED[name]
    forger.json(POOL_FILE, lambda pool: change(search_of(pool)))
    forger.assert_refused(POOL_FILE, rf"topology \d+, block \d+, entry \d+: {rule}")


def test_a_weaker_search_does_not_bear_its_rows_out(forger: Forger) -> None:
    forger.json(POOL_FILE, lambda pool: scale("makespan_s", 0.99)(search_of(pool)))
    forger.assert_refused(POINTS_FILE, RECOMPUTED, row=ANY)


def test_a_search_of_fewer_cores_does_not_hold_for_its_rows(forger: Forger) -> None:
    forger.json(POOL_FILE, lambda pool: search_of(pool).update(num_cores=[1, 1]))
    forger.assert_refused(POINTS_FILE, r"slot \d+ is bounded by a search that holds for at most", row=ANY)
