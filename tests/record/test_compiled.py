"""Compiled kernels: an edit of any source that goes into one is noticed, and nothing is compiled twice."""

from pathlib import Path

from child_process import run_python

CALLEE = """
from phaze_opt.record.compiled import compiled
FACTOR = {factor}
@compiled
def scaled(value):
    return value * {code}
"""
CALLER = """
from phaze_opt.record.compiled import compiled
from callee import FACTOR, scaled
@compiled
def total(count):
    found = 0.0
    for index in range(count):
        found += scaled(index) + FACTOR
    return found
"""
MAIN = "import caller; print(caller.total(4), sum(caller.total.stats.cache_hits.values()))"


def _run(folder: Path, *, factor: int = 0, code: str = "2.0", main: str = MAIN) -> list[str]:
    (folder / "callee.py").write_text(CALLEE.format(factor=factor, code=code))
    (folder / "caller.py").write_text(CALLER)
    environment = {"PATH": "", "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(folder)}
    package = str(Path(__file__).parents[2])
    code = f"import sys; sys.path[:0] = [{package!r}, {str(folder)!r}]; {main}"
    return run_python("-c", code, cwd=folder, env=environment, check=True).stdout.split()


def test_compiled_code_is_kept_until_a_source_changes_and_in_no_folder_that_a_file_names(tmp_path: Path) -> None:
    """Numba reads settings in the working folder: a folder of compiled code that they name would run it.

    Its own cache would go on with the old code of the callee after an edit there, of its code or of a constant.
    """
    (tmp_path / ".numba_config.yaml").write_text(f"cache_dir: {tmp_path / 'theirs'}\ndisable_jit: 1\n")
    assert _run(tmp_path) == ["12.0", "0"]
    assert _run(tmp_path) == ["12.0", "1"]
    assert not (tmp_path / "theirs").exists()
    assert _run(tmp_path, code="3.0") == ["18.0", "0"]
    assert _run(tmp_path, code="3.0", factor=1) == ["22.0", "0"]
    damaged = list(tmp_path.rglob("*.nb?"))
    for file in damaged:
        file.write_bytes(file.read_bytes()[:40])
    assert damaged
    assert _run(tmp_path, code="3.0", factor=1) == ["22.0", "0"]


def test_without_a_folder_to_write_kernels_work(tmp_path: Path) -> None:
    refuse = "from unittest import mock; from numba.core import caching; "
    refuse += "caching._CacheLocator.ensure_cache_path = mock.Mock(side_effect=OSError); "
    assert _run(tmp_path, main=refuse + MAIN) == ["12.0", "0"]
    assert not list(tmp_path.rglob("*.nbi"))
