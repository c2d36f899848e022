"""Numbers too large to compute with are refused where they stand, with the key and the limit."""

import json

import pytest

from phaze_opt.errors import InputError
from phaze_opt.schedule.problem import MAX_CORES, load_instance

NODES = [
    {"id": 0, "core_type": "TC", "latency": 2.0, "intra_op_latency": 1.0},
    {"id": 1, "core_type": "VC", "latency": 2.0, "intra_op_latency": 1.0},
]
INSTANCE = {"name": "two", "num_tc": 1, "num_vc": 1, "nodes": NODES, "edges": [[0, 1]]}


def load(tmp_path, **changes):
    file = tmp_path / "x.json"
    file.write_text(json.dumps(INSTANCE | changes))
    return load_instance(file)


@pytest.mark.parametrize("key", ["num_tc", "num_vc"])
def test_core_counts(key, tmp_path):
    assert load(tmp_path, **{key: MAX_CORES}).problem is not None
    with pytest.raises(InputError, match=f"x.json:1: key '{key}'"):
        load(tmp_path, **{key: 10**30})


def test_latencies(tmp_path):
    nodes = [{**NODES[0], "latency": 1e308}, NODES[1]]
    with pytest.raises(InputError, match=r"nodes\[0\].latency"):
        load(tmp_path, nodes=nodes)
