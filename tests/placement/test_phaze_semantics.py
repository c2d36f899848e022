"""``--semantics phaze``: public optima, brute force on small instances, refusal of bad files."""

import json
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze_opt.errors import InputError, VerificationError
from phaze_opt.placement.phaze_instance import PhazeChain, PhazeEdge, PhazeInstance, PhazeLayer, load_phaze_instance
from phaze_opt.placement.phaze_solve import solve_phaze
from phaze_opt.placement.problem import PlacementStatus
from phaze_opt.placement.verify import evaluate_phaze, verify_phaze

FILES = sorted((Path(__file__).parent / "data").glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_public_optimum(path: Path) -> None:
    optimum = json.loads(path.read_text())["optimum"]
    instance = load_phaze_instance(path)
    placement = solve_phaze(instance)
    verify_phaze(instance, placement)
    if not optimum["feasible"]:
        assert placement.status is PlacementStatus.INFEASIBLE
        assert placement.shortfall.needed_bytes > placement.shortfall.available_bytes
        return
    assert placement.batch_time_s == pytest.approx(optimum["finalTimePerBatch"], rel=1e-9)


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.stem in ("34_INF_gpt3_96_w48_d64", "42_rand1_L4_w1_d24")]
)
def test_shortfall_is_tight(path: Path) -> None:
    """With the bytes it asks for the instance fits, with one in a million less it does not."""
    instance = load_phaze_instance(path)
    shortfall = solve_phaze(instance).shortfall
    enough = replace(instance, memory_bytes=shortfall.needed_bytes)
    assert solve_phaze(enough).status is PlacementStatus.OPTIMAL
    short = replace(instance, memory_bytes=shortfall.needed_bytes * (1 - 1e-6))
    assert solve_phaze(short).status is PlacementStatus.INFEASIBLE


def random_instance(seed: int, num_layers: int) -> PhazeInstance:
    """A chain with random skip edges at one to three widths, some layers not sharded."""
    rng = np.random.default_rng(seed)
    pairs = [(i, j) for i in range(num_layers) for j in range(i + 1, num_layers) if j == i + 1 or rng.random() < 0.3]
    sharded = rng.random(num_layers) < 0.6
    chains = []
    for width in [1, 2, 3][: int(rng.integers(1, 4))]:
        layers = tuple(
            PhazeLayer(i - 1, *(float(x) for x in rng.uniform(0.1, 4.0, 4)), bool(sharded[i]) and width > 1)
            for i in range(num_layers)
        )
        edges = tuple(PhazeEdge(i, j, float(rng.uniform(0.0, 3.0))) for i, j in pairs)
        chains.append(PhazeChain(width, layers, edges))
    return PhazeInstance(
        chains=tuple(chains),
        memory_bytes=float(rng.uniform(8.0, 60.0)),
        num_devices=int(rng.integers(1, 13)),
        bandwidth_bytes_per_s=float(rng.uniform(0.3, 5.0)),
        num_micro_batches=int(rng.integers(1, 20)),
        is_recomputed=bool(rng.random() < 0.5),
        has_adam=bool(rng.random() < 0.5),
    )


def brute_force(instance: PhazeInstance) -> float | None:
    num_layers = len(instance.chains[0].layers)
    times = [
        evaluate_phaze(instance, tensor_parallel=chain.tensor_parallel, data_parallel=d, bounds=(0, *cuts, num_layers))
        for chain in instance.chains
        for d in range(1, min(instance.num_devices, instance.num_micro_batches) + 1)
        for count in range(num_layers)
        for cuts in combinations(range(1, num_layers), count)
    ]
    return min((time for time in times if time is not None), default=None)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**9), num_layers=st.integers(1, 6))
def test_equals_brute_force(seed: int, num_layers: int) -> None:
    instance = random_instance(seed, num_layers)
    expected, placement = brute_force(instance), solve_phaze(instance)
    verify_phaze(instance, placement)
    if expected is None:
        assert placement.status is PlacementStatus.INFEASIBLE
    else:
        assert placement.batch_time_s == pytest.approx(expected, rel=1e-9)


def test_verifier_refuses_a_wrong_load() -> None:
    instance = load_phaze_instance(FILES[0])
    placement = solve_phaze(instance)
    wrong = replace(placement.stages[0], load_s=placement.stages[0].load_s * 1.001)
    with pytest.raises(VerificationError, match="load_s"):
        verify_phaze(instance, replace(placement, stages=(wrong, *placement.stages[1:])))


def test_input_object_alone_equals_the_whole_file(tmp_path: Path) -> None:
    alone = tmp_path / "alone.json"
    alone.write_text(json.dumps(json.loads(FILES[0].read_text())["input"]))
    assert load_phaze_instance(alone) == load_phaze_instance(FILES[0])


BAD_VALUES = [
    (("maxDevices",), 0, "maxDevices"),
    (("maxDevices",), "8", "maxDevices"),
    (("maxMemoryPerDevice",), -1, "maxMemoryPerDevice"),
    (("bandwidth",), float("inf"), "bandwidth"),
    (("bandwidth",), 0, "bandwidth"),
    (("bandwidth",), 1e-320, "bandwidth"),
    (("maxDevices",), 1e7, "at most 1000000"),
    (("mbsInBatch",), 0.5, "mbsInBatch"),
    (("mbsInBatch",), 1e19, "at most 2147483648"),
    (("optimizerAlgorithm",), "Adma", "optimizerAlgorithm"),
    (("activationRecomputation",), 1, "activationRecomputation"),
    (("bandwith",), 1.0, "did you mean bandwidth?"),
    (("nodes", "1", 0, "parameterSize"), float("nan"), "parameterSize"),
    (("nodes", "1", 0, "optimalLatencyFw"), -1.0, "optimalLatencyFw"),
    (("nodes", "1", 0, "paramSize"), 1.0, "did you mean parameterSize?"),
    (("nodes", "1", 0, "id"), 0, "unique"),
    (("nodes", "1", 0, "isTensorParallelized"), True, "width 1"),
    (("edges", "1", 0, "destId"), 99, "dangles"),
    (("edges", "1", 0, "destId"), -1, "itself"),
    (("edges", "1", 0, "destId"), 3, "not joined"),
    (("edges", "1", 0), {"sourceId": 1, "destId": 0, "communicationCost": 1.0}, "cycle"),
    (("edges", "1", 1), {"sourceId": -1, "destId": 0, "communicationCost": 1.0}, "twice"),
    (("edges", "2"), [], "widths"),
    (("nodes",), {}, "at least one"),
    (("nodes",), {"one": []}, "width 'one'"),
]


@pytest.mark.parametrize(("keys", "value", "says"), BAD_VALUES, ids=[f"{b[0][-1]}-{b[1]}"[:40] for b in BAD_VALUES])
def test_bad_instance_is_one_clear_sentence(keys: tuple, value: object, says: str, tmp_path: Path) -> None:
    content = target = json.loads((Path(__file__).parent / "data" / "01_tiny4_w1_d8.json").read_text())["input"]
    for key in keys[:-1]:
        target = target[key]
    target[keys[-1]] = value
    file = tmp_path / "file.json"
    file.write_text(json.dumps(content))
    with pytest.raises(InputError) as caught:
        load_phaze_instance(file)
    assert says in str(caught.value)
    assert str(caught.value).startswith(str(file))
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b'{"input": {\n "maxDevices": 8,', "broken.json:2"),
        (bytes(range(128, 256)), "UTF-8"),
        (b"[1, 2]", "object"),
        (b'{"input": 3}', "key 'input': value 3 must be a table"),
        (b"[" * 100_000, "nests"),
        (b'{"bandwidth": ' + b"9" * 5000 + b"}", "too long"),
    ],
)
def test_broken_file(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(says)):
        load_phaze_instance(path)


def test_directory_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="directory"):
        load_phaze_instance(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        load_phaze_instance(tmp_path / "none.json")
