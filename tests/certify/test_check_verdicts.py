"""What is no forgery is accepted; what no recomputed digest hides is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forger import ANY, AREA, ATTAINED, MEMORY, RECOMPUTED, TDP, UPPER, Forger
from forger_originals import COMMON, HOPELESS, TYPED
from forger_trees import branching, leaf, put_tree, sharing_pair, valid_tree

from phaze_opt.certify.certificate import CERTIFICATE_FILE, JOURNAL_DIRECTORY, POINTS_FILE, POOL_FILE, SOLUTIONS_FILE
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.errors import CertificateError


@pytest.mark.parametrize("kind", [TYPED, COMMON, HOPELESS])
def test_a_valid_certificate_is_accepted_given_any_of_its_files(kind: str, certificates: dict[str, Path]) -> None:
    directory = certificates[kind]
    report = check_certificate(directory)
    assert report.claim.num_points == report.num_relaxed + report.num_exact + report.num_over_budget
    assert report.claim.is_feasible == (kind != HOPELESS)
    assert check_certificate(directory / POOL_FILE).claim == report.claim


def test_the_certificates_hold_every_kind_of_row(certificates: dict[str, Path], forger: Forger) -> None:
    """Otherwise the forgeries above prove less than they seem to."""
    report = check_certificate(certificates[TYPED])
    assert min(report.num_relaxed, report.num_exact, report.num_over_budget, report.num_out_of_memory) > 0
    assert {AREA, TDP, MEMORY, ""} == set(forger.columns()["reason"])


def test_numbers_of_another_machine_are_accepted(forger: Forger) -> None:
    """Sums in another order differ in the last digits."""
    rng = np.random.default_rng(7)

    def jitter(value: float) -> float:
        return value * (1.0 + 1e-12 * float(rng.uniform(-1.0, 1.0)))

    def points(columns: dict[str, list]) -> None:
        for name in ("area_mm2", "tdp_w", UPPER, ATTAINED):
            columns[name] = [jitter(value) for value in columns[name]]

    def pool(data: Any) -> None:
        for topology in data["topologies"]:
            for block in topology["blocks"]:
                for entry in block["entries"]:
                    for flow in entry["flows"]:
                        flow.update({name: [jitter(value) for value in flow[name]] for name in flow})

    def solutions(data: Any) -> None:
        for solution in data["solutions"]:
            for schedule in solution["models"][0]["schedules"]:
                schedule["start_s"] = [jitter(start) for start in schedule["start_s"]]

    forger.points(points)
    forger.json(POOL_FILE, pool)
    forger.json(SOLUTIONS_FILE, solutions)
    forger.put("claim.value", jitter)
    forger.seal()
    check_certificate(forger.directory)


def test_a_tree_that_covers_all_cases_is_accepted(forger: Forger) -> None:
    put_tree(forger, valid_tree)
    forger.seal()
    assert check_certificate(forger.directory).num_trees == 1


def test_a_tree_with_cyclic_orders_is_accepted(forger: Forger) -> None:
    """Both orders of two operators, one after the other: two of the four cases have no schedule."""

    def make(vector: Any, pool: Any) -> list:
        i, j = sharing_pair(pool)
        twice = [branching("order", i, j), leaf(vector), leaf(None), branching("order", i, j), leaf(None), leaf(vector)]
        return [branching("mode", i), branching("order", i, j), *twice, leaf(vector)]

    put_tree(forger, make)
    forger.seal()
    assert check_certificate(forger.directory).num_trees == 1


def test_a_changed_number_is_named_by_its_row_though_a_digest_would_tell_too(forger: Forger) -> None:
    forger.cells(0, **{UPPER: 1.0})
    forger.assert_refused(POINTS_FILE, f"{UPPER} is", row=0, is_sealed=False)


def test_changed_bytes_that_break_no_rule_are_refused_by_their_digest(forger: Forger) -> None:
    path = forger.directory / POOL_FILE
    path.write_bytes(path.read_bytes().replace(b",", b", ", 1))
    forger.assert_refused(POOL_FILE, "its digest is not that of its content", is_sealed=False)


@pytest.mark.parametrize(
    ("place", "value"), [("claim.tolerance", 0.5), ("provenance.wall_s", 0.1), ("digest", "0" * 64)]
)
def test_a_changed_certificate_file_is_refused_by_its_own_digest(place: str, value: object, forger: Forger) -> None:
    forger.put(place, value)
    forger.assert_refused(CERTIFICATE_FILE, "its digest is not that of its content", is_sealed=False)


def test_another_problem_is_refused_by_its_digest(forger: Forger) -> None:
    forger.put("scenario.global_batch", 128)
    forger.sign()
    forger.assert_refused(CERTIFICATE_FILE, "problem_digest is not that of", is_sealed=False)


def test_a_truncated_certificate_file_is_refused(forger: Forger) -> None:
    forger.truncate(CERTIFICATE_FILE)
    forger.assert_refused(CERTIFICATE_FILE, "does not hold what its form asks for", is_sealed=False)


def test_a_certificate_is_valid_while_a_tighter_proof_is_under_way(forger: Forger) -> None:
    """Whose journal stands beside it; what is no directory has no business there."""
    (forger.directory / JOURNAL_DIRECTORY).mkdir()
    assert check_certificate(forger.directory).claim.is_proved
    (forger.directory / JOURNAL_DIRECTORY).rmdir()
    (forger.directory / JOURNAL_DIRECTORY).write_text("")
    forger.assert_refused(JOURNAL_DIRECTORY, "no certificate holds such a file or directory")


def test_no_certificate_at_all_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(CertificateError, match="no certificate's directory nor a file in one"):
            check_certificate(path)


def without_the_incumbent(forger: Forger) -> None:
    """Its solutions at the best value forgotten: the next best is claimed, with the gap that leaves."""
    columns = forger.columns()
    best = max(columns[ATTAINED])
    dropped = [row for row in columns["index"] if columns[ATTAINED][row] > best * (1 - 1e-6)]

    def forget(points: dict[str, list]) -> None:
        for row in dropped:
            points["status"][row], points[ATTAINED][row] = "pruned-by-bound", 0.0

    def keep(data: Any) -> None:
        data["solutions"] = [solution for solution in data["solutions"] if solution["index"] not in dropped]

    forger.points(forget)
    forger.json(SOLUTIONS_FILE, keep)
    columns = forger.columns()
    value, upper = max(columns[ATTAINED]), max(columns[UPPER])
    row = columns[ATTAINED].index(value)
    names = ("num_tc", "num_vc", "tc_width", "tc_depth", "vc_width", "glb_bytes", "hbm_bytes", "micro_batch")
    forger.claim(
        incumbent=row,
        value=value,
        throughput_samples_per_s=value,
        gap=forger.read(CERTIFICATE_FILE)["claim"]["value_upper"] / value - 1.0,
        num_solved=len(forger.read(SOLUTIONS_FILE)["solutions"]),
        point={name: columns[name][row] for name in names},
    )
    assert upper / value - 1.0 > 1e-6


def test_a_weaker_claim_is_accepted_only_if_it_does_not_say_proved(forger: Forger) -> None:
    without_the_incumbent(forger)
    forger.claim(is_proved=False, tolerance=0.0)
    forger.seal()
    assert not check_certificate(forger.directory).claim.is_proved
    forger.claim(is_proved=True, tolerance=0.0)
    forger.assert_refused(CERTIFICATE_FILE, "claim: is_proved though the gap of .* exceeds the tolerance of 0")


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"incumbent": 0}, "names an incumbent though no row is feasible"),
        ({"value": 1.0}, "states a value though no row is feasible"),
        ({"is_feasible": True}, "is_feasible is True but the rows say False"),
    ],
)
def test_nothing_is_claimed_where_nothing_is_feasible(
    changes: dict[str, object], rule: str, certificates: dict[str, Path], tmp_path: Path
) -> None:
    forger = Forger(certificates[HOPELESS], tmp_path / "forged")
    forger.claim(**changes)
    forger.assert_refused(CERTIFICATE_FILE, f"claim: {rule}")


def test_every_model_of_a_common_design_counts(certificates: dict[str, Path], tmp_path: Path) -> None:
    forger = Forger(certificates[COMMON], tmp_path / "forged")
    forger.put("scenario.common", "arithmetic")
    forger.assert_refused(POINTS_FILE, RECOMPUTED, row=ANY)


def test_a_value_per_tdp_is_not_a_throughput(certificates: dict[str, Path], tmp_path: Path) -> None:
    forger = Forger(certificates[COMMON], tmp_path / "forged")
    forger.put("goal", "throughput")
    forger.assert_refused(CERTIFICATE_FILE, "claim: value")
