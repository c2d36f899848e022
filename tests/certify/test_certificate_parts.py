"""Pools and solutions beyond what a line may hold: what nothing names goes, the rest goes on in further lines."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from forger import Forger
from small_problems import small_problem, small_scenario, small_space

from phaze_opt.certify import writing
from phaze_opt.certify.certificate import POOL_FILE, SOLUTIONS_FILE, SolutionsFile
from phaze_opt.certify.check import files
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.check.report import CheckReport
from phaze_opt.certify.problem import CertifyOptions
from phaze_opt.certify.prove import certify
from phaze_opt.certify.result import CertifyResult
from phaze_opt.certify.writing import statement_line
from phaze_opt.errors import CertificateError, InputError
from phaze_opt.record import input_files
from phaze_opt.record.input_files import MAX_PARTS, count_values
from phaze_opt.schedule.problem import Exclusivity


def prove(directory: Path) -> CertifyResult:
    """One whose proof needs several rounds and proof trees, which later ones make unneeded."""
    scenario = small_scenario(exclusivity=Exclusivity.TYPE, max_tdp_w=150.0)
    space = small_space(num_tc=(4, 16), num_vc=(2, 8), tc_width=(16, 32, 64), micro_batch=(1, 2, 4))
    return certify(small_problem(scenario, space), CertifyOptions(tolerance=0.0, num_best=16, directory=directory))


def lines(directory: Path, name: str = POOL_FILE) -> list[bytes]:
    return (directory / name).read_bytes().splitlines()


def entries(directory: Path) -> list[str]:
    """Of all lines by their block, in order."""
    pools = [json.loads(line)["topologies"] for line in lines(directory)]
    blocks = [[[block["entries"] for block in topology["blocks"]] for topology in pool] for pool in pools]
    joined = [[sum(own, []) for own in zip(*topologies, strict=True)] for topologies in zip(*blocks, strict=True)]
    return [json.dumps(entry) for topology in joined for block in topology for entry in block]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prove(tmp_path_factory.mktemp("whole")).directory


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """States fewer values or bytes for a line, to prover and checker alike."""

    def limit(**most: int) -> None:
        for name, number in most.items():
            for module in (input_files, writing, files):
                monkeypatch.setattr(module, f"MAX_{name.upper()}", number)

    return limit


def confirmed(report: CheckReport) -> tuple[object, ...]:
    """What was confirmed, whatever entries it took."""
    return report.claim, report.num_relaxed, report.num_exact, report.num_schedules


@pytest.mark.parametrize(("share", "num_lines"), [(1.0, 1), (0.99, 1), (0.6, 2), (0.5, 4)])
def test_what_is_written_under_a_limit_is_read_under_it(
    share: float, num_lines: int, whole: Path, limit: Callable[..., None], tmp_path: Path
) -> None:
    size, known = count_values(lines(whole)[0]), confirmed(check_certificate(whole))
    limit(values=int(share * size))
    result = prove(tmp_path)
    written = lines(result.directory)
    assert len(written) == num_lines
    assert max(map(count_values, written)) <= share * size
    assert confirmed(check_certificate(result.directory)) == known
    assert set(entries(result.directory)) <= set(entries(whole))
    assert (entries(result.directory) == entries(whole)) == (share == 1.0)
    with np.load(result.directory / "multipliers.npz") as tables, np.load(whole / "multipliers.npz") as before:
        assert {name: tables[name].shape for name in tables.files} == {
            name: before[name].shape for name in before.files
        }


@pytest.mark.parametrize(("most", "name"), [({"values": 400}, "pool"), ({"part_bytes": 1000}, "pool")])
def test_a_proof_beyond_all_lines_is_refused_and_leaves_nothing(
    most: dict[str, int], name: str, limit: Callable[..., None], tmp_path: Path
) -> None:
    limit(**most)
    with pytest.raises(
        InputError, match=rf"{name}.json would hold [\d,]+ values in [\d,]+ bytes, and a check reads at most"
    ):
        prove(tmp_path)
    assert [each.name for each in tmp_path.rglob("*.json")] == []
    limit(values=1)
    with pytest.raises(InputError, match=r"front.json would hold .* at most 1 lines"):
        statement_line(SolutionsFile, SolutionsFile(()), name="front.json")


def test_lines_of_long_numbers_keep_to_bytes_too(whole: Path, limit: Callable[..., None], tmp_path: Path) -> None:
    """The pool's numbers have 17 digits: its bytes run out where its values would do."""
    size, most = len(lines(whole)[0]), 12_000
    limit(part_bytes=most)
    result = prove(tmp_path)
    written = lines(result.directory) + lines(result.directory, SOLUTIONS_FILE)
    assert max(map(len, written)) < most < size
    assert len(lines(result.directory)) > 1
    assert len(lines(result.directory, SOLUTIONS_FILE)) > 1
    assert confirmed(check_certificate(result.directory)) == confirmed(check_certificate(whole))


def halved(forger: Forger, change: Callable[[dict[str, object]], None] = lambda _: None) -> None:
    """The pool in two lines, the second with the later half of each block's entries and a change."""
    first, second = (json.loads(lines(forger.directory)[0]) for _ in range(2))
    for topology, other in zip(first["topologies"], second["topologies"], strict=True):
        for block, rest in zip(topology["blocks"], other["blocks"], strict=True):
            half = len(block["entries"]) // 2
            del block["entries"][half:], rest["entries"][:half]
    change(second)
    (forger.directory / POOL_FILE).write_text(f"{json.dumps(first)}\n{json.dumps(second)}\n")
    forger.seal()


def test_lines_are_one_pool(forger: Forger) -> None:
    before = check_certificate(forger.directory)
    halved(forger)
    after = check_certificate(forger.directory)
    assert confirmed(after) == confirmed(before)
    assert (after.num_vectors, after.num_trees) == (before.num_vectors, before.num_trees)


def lacks_a_topology(pool: dict[str, list[dict[str, object]]]) -> None:
    del pool["topologies"][-1]


def has_other_arcs(pool: dict[str, list[dict[str, list[dict[str, list[object]]]]]]) -> None:
    next(block for topology in pool["topologies"] for block in topology["blocks"] if block["arcs"])["arcs"].pop()


@pytest.mark.parametrize("change", [lacks_a_topology, has_other_arcs], ids=lambda change: change.__name__)
def test_a_line_of_other_blocks_is_refused(change: Callable[[dict[str, object]], None], forger: Forger) -> None:
    halved(forger, change)
    with pytest.raises(CertificateError, match="a line has other topologies or blocks than the first"):
        check_certificate(forger.directory)


@pytest.mark.parametrize("name", [POOL_FILE, SOLUTIONS_FILE])
def test_more_lines_than_memory_is_for_are_refused_unread(name: str, forger: Forger) -> None:
    path = forger.directory / name
    path.write_bytes(path.read_bytes() * (MAX_PARTS + 1))
    forger.seal()
    with pytest.raises(CertificateError, match=f"has more than {MAX_PARTS} lines"):
        check_certificate(forger.directory)
