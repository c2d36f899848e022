"""Lets tests of studies import what is in `outside`, as worker processes do; the study that nothing disturbed."""

import pytest
from toy_study import CONFIG, ENGINE, table

from phaze_opt.study.run import run_study


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    result = run_study(CONFIG, work_dir=tmp_path_factory.mktemp("undisturbed"), engine=ENGINE)
    assert result.is_complete
    return table(result)
