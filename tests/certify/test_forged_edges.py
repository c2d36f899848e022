"""Forgeries at the edges: what forms do not exclude, numbers without end, budgets met to the last bit."""

import io
import json
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from forger import Forger
from forger_words import AREA, TDP, claim_says, in_file, refusal
from pyarrow import parquet

from phaze_opt.certify.certificate import CERTIFICATE_FILE, MULTIPLIERS_FILE, POINTS_FILE, POOL_FILE, SOLUTIONS_FILE
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.check.files import read_certificate
from phaze_opt.certify.check.space_rows import check_budgets, enumerate_architectures, joined_points
from phaze_opt.errors import CertificateError
from phaze_opt.hardware.constants import load_constants

HUGE = 10**30
MORE = "holds more than its form asks for"


def archive_of(forger: Forger, members: Callable[[str, bytes], Iterator[tuple[str, bytes]]]) -> None:
    """Write the multipliers anew, each array as the members that it becomes."""
    path = forger.directory / MULTIPLIERS_FILE
    with np.load(path) as archive:
        tables = {name: archive[name] for name in archive.files}
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, table in tables.items():
            stream = io.BytesIO()
            np.save(stream, table)
            for member, content in members(name, stream.getvalue()):
                archive.writestr(member, content)


def unknown_key_of_the_claim(forger: Forger) -> str:
    forger.claim(is_checked_by="an auditor")
    return in_file(CERTIFICATE_FILE, MORE)


def words_for_numbers(forger: Forger) -> str:
    forger.certificate(lambda data: data["claim"].update(num_points=str(data["claim"]["num_points"])))
    return in_file(CERTIFICATE_FILE, MORE)


def vector_and_tree_in_one(forger: Forger) -> str:
    def change(data: dict) -> None:
        blocks = (block for topology in data["topologies"] for block in topology["blocks"])
        next(block for block in blocks if block["entries"])["entries"][0]["nodes"] = []

    forger.json(POOL_FILE, change)
    return in_file(POOL_FILE, MORE)


def array_listed_twice(forger: Forger) -> str:
    archive_of(forger, lambda name, content: iter([(f"{name}.npy", content)] * 2))
    return in_file(MULTIPLIERS_FILE, r"holds \['mb1.npy', 'mb1.npy', 'mb4.npy', 'mb4.npy'\]")


def member_that_is_no_array(forger: Forger) -> str:
    archive_of(forger, lambda name, _: iter([(name, b"no array")]))
    return in_file(MULTIPLIERS_FILE, r"holds \['mb1', 'mb4'\]")


def array_larger_than_memory(forger: Forger) -> str:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i4", "fortran_order": False, "shape": (2**44, 3)})
    archive_of(forger, lambda name, _: iter([(f"{name}.npy", header.getvalue())]))
    return in_file(MULTIPLIERS_FILE, r"mb1 is int32 of shape \(17592186044416, 3\)")


def encrypted_archive(forger: Forger) -> str:
    path = forger.directory / MULTIPLIERS_FILE
    content = bytearray(path.read_bytes())
    content[content.find(b"PK\x01\x02") + 8] |= 1
    content[content.find(b"PK\x03\x04") + 6] |= 1
    path.write_bytes(content)
    return in_file(MULTIPLIERS_FILE, "cannot be read as arrays")


def words_that_are_no_text(forger: Forger) -> str:
    path = forger.directory / POINTS_FILE
    table = parquet.read_table(path)
    words = pa.array([b"\xff\xfe"] * len(table), type=pa.binary()).view(pa.string())
    parquet.write_table(table.set_column(table.column_names.index("status"), "status", words), path)
    return in_file(POINTS_FILE, "cannot be read as Parquet")


def solution_far_outside(forger: Forger) -> str:
    forger.json(SOLUTIONS_FILE, lambda data: data["solutions"][-1].update(index=HUGE))
    return in_file(SOLUTIONS_FILE, f"has a solution of row {HUGE}, which there is not")


def endless_stage(forger: Forger) -> str:
    forger.json(SOLUTIONS_FILE, lambda data: data["solutions"][0]["models"][0]["stages"][-1].update(last=HUGE))
    return rf"^{re.escape(SOLUTIONS_FILE)}, row \d+: its stages do not hold each of \d+ layers once"


def endless_cluster(forger: Forger) -> str:
    forger.certificate(lambda data: data["scenario"]["cluster"].update(num_devices=HUGE))
    return in_file(CERTIFICATE_FILE, f"{HUGE} devices are more than")


def endless_buffer(forger: Forger) -> str:
    forger.certificate(lambda data: data["space"]["axes"]["glb_bytes"].append(HUGE))
    return in_file(CERTIFICATE_FILE, r"cannot be worked out again \(OverflowError")


def model_without_a_graph(forger: Forger) -> str:
    forger.certificate(lambda data: data["scenario"]["models"][0].update(ffn_size=-5))
    return in_file(CERTIFICATE_FILE, r"cannot be worked out again \(InputError: matmul n = -5")


def modest_tolerance(forger: Forger) -> str:
    forger.claim(is_proved=False)
    return claim_says("is not is_proved though the gap of .* is within the tolerance")


def impossible_effort(forger: Forger) -> str:
    forger.certificate(lambda data: data["provenance"].update(num_placements=-1))
    return claim_says("its provenance holds a number that is not finite and at least 0")


FORGERIES = (
    unknown_key_of_the_claim,
    words_for_numbers,
    vector_and_tree_in_one,
    array_listed_twice,
    member_that_is_no_array,
    array_larger_than_memory,
    encrypted_archive,
    words_that_are_no_text,
    solution_far_outside,
    endless_stage,
    endless_cluster,
    endless_buffer,
    model_without_a_graph,
    modest_tolerance,
    impossible_effort,
)


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_a_forgery_is_refused_by_row_and_rule(forge: Callable[[Forger], str], forger: Forger) -> None:
    expected = forge(forger)
    sentence = refusal(forger)
    assert re.match(expected, sentence), sentence


@pytest.mark.parametrize(
    ("budget", "column", "word"), [("max_area_mm2", "area_mm2", AREA), ("max_tdp_w", "tdp_w", TDP)]
)
def test_a_design_that_meets_a_budget_to_the_last_bit_keeps_it(
    budget: str, column: str, word: str, forger: Forger
) -> None:
    """The incumbent called over a budget that is exactly its own figure: an easy way to lose the best design."""
    files = read_certificate(forger.directory)
    row, values = files.certificate.claim.incumbent, getattr(files.points, column)
    scenario = replace(files.certificate.scenario, max_area_mm2=None, max_tdp_w=None)
    scenario = replace(scenario, **{budget: float(values[row])})
    space, constants = files.certificate.space, load_constants()
    is_over = values > values[row]

    def check(reason: np.ndarray) -> None:
        points = replace(files.points, reason=reason)
        every = joined_points(space, enumerate_architectures(space, constants))
        check_budgets(points, every, scenario=scenario, constants=constants)

    reason = np.where(is_over, word, "").astype(object)
    check(reason)
    reason[row] = word
    with pytest.raises(CertificateError, match=f"row {row}: reason is '{word}' but the design takes"):
        check(reason)


def test_files_replaced_while_they_are_read_are_those_of_the_digests(
    forger: Forger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is checked are the bytes whose digest was compared, not what the path holds a moment later."""
    from phaze_opt.certify.check import files

    name = SOLUTIONS_FILE
    original = files.read_points

    def replace_and_read(content: bytes, **how: int) -> object:
        (forger.directory / name).write_text(json.dumps({"solutions": []}))
        return original(content, **how)

    monkeypatch.setattr(files, "read_points", replace_and_read)
    assert check_certificate(forger.directory).num_schedules > 0
    with pytest.raises(CertificateError, match="solved"):
        check_certificate(forger.directory)
