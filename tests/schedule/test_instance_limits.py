"""Numbers too large to compute with are refused where they stand, with the key and the limit."""

import pytest

from phaze_opt.errors import InputError
from phaze_opt.schedule.instance import MAX_CORES, parse_instance

NODES = [
    {"id": 0, "core_type": "TC", "latency": 2.0, "intra_op_latency": 1.0},
    {"id": 1, "core_type": "VC", "latency": 2.0, "intra_op_latency": 1.0},
]
INSTANCE = {"name": "two", "num_tc": 1, "num_vc": 1, "nodes": NODES, "edges": [[0, 1]]}


@pytest.mark.parametrize("key", ["num_tc", "num_vc"])
def test_core_counts(key):
    assert parse_instance({**INSTANCE, key: MAX_CORES}, source="x.json").problem is not None
    with pytest.raises(InputError, match=f"x.json: key '{key}'"):
        parse_instance({**INSTANCE, key: 10**30}, source="x.json")


def test_latencies():
    nodes = [{**NODES[0], "latency": 1e308}, NODES[1]]
    with pytest.raises(InputError, match=r"nodes\[0\].latency"):
        parse_instance({**INSTANCE, "nodes": nodes}, source="x.json")
