"""A worker on an RDB storage, run as a script: ``hang`` dies with a claim, ``race`` takes what is free."""

import sys
import time

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.record.address import parse_address
from phaze_opt.search.result import KnownEvaluation
from phaze_opt.study.stores.optuna_store import OptunaStore
from phaze_opt.study.stores.rdb_storage import Insistence, open_rdb_storage
from phaze_opt.testing.problems import ToyObjective, ToyScenario

DIGEST = "d" * 64
NUM_POINTS = 20


def point_with(num_vc: int) -> DesignPoint:
    return DesignPoint(2, num_vc, 16, 16, 16, 2 << 20, 32 << 30, 1)


def open_store(url: str, *, heartbeat_s: int = 1, grace_s: int = 2) -> OptunaStore:
    address = parse_address(url, source="test")
    return OptunaStore(open_rdb_storage(address, heartbeat_s=heartbeat_s, grace_s=grace_s), Insistence(address))


def hang(store: OptunaStore) -> None:
    sys.stdout.write(f"{store.claim(DIGEST, point_with(4))}\n")
    sys.stdout.flush()
    time.sleep(60)


def race(store: OptunaStore) -> None:
    for lanes in range(1, NUM_POINTS + 1):
        point = point_with(lanes)
        if store.known(DIGEST, point) is None and store.claim(DIGEST, point):
            evaluation = ToyObjective(ToyScenario()).evaluate(point)
            store.complete(DIGEST, point, KnownEvaluation(evaluation, 0.25))
            sys.stdout.write(f"{lanes}\n")
    store.close()


if __name__ == "__main__":
    {"hang": hang, "race": race}[sys.argv[1]](open_store(sys.argv[2]))
