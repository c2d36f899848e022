"""What ``phaze-opt study list`` prints: a row a study, from its plan and the number of its finished searches."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from phaze_opt.cli.output import out, print_tables
from phaze_opt.errors import InputError
from phaze_opt.report.table import Column, TableContent
from phaze_opt.study.directory import StudyDirectory, read_plan


def list_rows(studies: Sequence[StudyDirectory]) -> list[dict[str, Any]]:
    """A row per study."""
    rows = []
    for study in studies:
        try:
            config = read_plan(study)["config"]
            planned = len(config["settings"]) * len(config["workloads"]) * len(config["contenders"])
            name, num_cells = str(config["name"]), planned * len(config["seeds"])
        except (InputError, KeyError, TypeError):
            name, num_cells = "(unreadable)", None
        rows.append(
            {
                "name": name,
                "study_id": study.study_id,
                "finished_searches": study.num_finished(),
                "planned_searches": num_cells,
                "age_s": max(0.0, time.time() - study.plan.stat().st_mtime),
                "directory": str(study.path),
            }
        )
    return rows


def print_list(rows: Sequence[Mapping[str, Any]]) -> None:
    """The studies as a table."""
    columns = (Column("study"), Column("identifier"), Column("searches", is_number=True), Column("age", is_number=True))
    cells = tuple(
        (
            str(row["name"]),
            str(row["study_id"]),
            f"{row['finished_searches']} of {row['planned_searches'] or '?'}",
            describe_age(row["age_s"]),
        )
        for row in rows
    )
    done = sum(row["finished_searches"] >= (row["planned_searches"] or math.inf) for row in rows)
    out().print(f"{len(rows):,} studies, {done:,} of them finished; `phaze-opt report NAME` writes what one found.")
    print_tables(TableContent("Studies", columns, cells))


def describe_age(age_s: float) -> str:
    """An age in its largest whole unit."""
    for unit, seconds in (("d", 86400), ("h", 3600), ("min", 60)):
        if age_s >= seconds:
            return f"{age_s / seconds:.0f} {unit}"
    return f"{age_s:.0f} s"
