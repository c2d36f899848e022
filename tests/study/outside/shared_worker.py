"""A machine of a shared study, run as a script: storage address, working directory, name of its objective."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from toy_study import CONFIG, ENGINE, build_slow, build_toy

from phaze_opt.record.address import parse_address
from phaze_opt.study.run import run_study
from phaze_opt.study.stores.local_store import LocalStore
from phaze_opt.study.stores.optuna_store import OptunaStore
from phaze_opt.study.stores.rdb_storage import Insistence, open_rdb_storage
from phaze_opt.study.stores.store import MirroredStore


def open_store(directory: Path, *, url: str) -> MirroredStore:
    address = parse_address(url, source="test")
    storage = open_rdb_storage(address, heartbeat_s=1, grace_s=3)
    return MirroredStore(LocalStore(directory), OptunaStore(storage, Insistence(address)))


def shared_engine_of(url: str, objective: str) -> object:
    build = {"toy": build_toy, "slow": build_slow}[objective]
    return replace(ENGINE, build_objective=build, open_store=partial(open_store, url=url), is_shared=True)


if __name__ == "__main__":
    run_study(CONFIG, work_dir=Path(sys.argv[2]), engine=shared_engine_of(sys.argv[1], sys.argv[3]), is_resumed=True)
