"""A machine of a shared study, run as a script: storage address, working directory."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from store_worker import open_store
from toy_study import CONFIG, ENGINE, build_slow

from phaze_opt.study.engine import StudyEngine
from phaze_opt.study.run import run_study
from phaze_opt.study.stores.store import LocalStore, MirroredStore


def open_mirrored(directory: Path, *, url: str) -> MirroredStore:
    return MirroredStore(LocalStore(directory), open_store(url, grace_s=3))


def engine_of(url: str) -> StudyEngine:
    return replace(ENGINE, build_objective=build_slow, open_store=partial(open_mirrored, url=url), is_shared=True)


if __name__ == "__main__":
    run_study(CONFIG, work_dir=Path(sys.argv[2]), engine=engine_of(sys.argv[1]), is_resumed=True)
