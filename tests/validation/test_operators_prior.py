"""The weak pull of constants that no row determines."""

import pytest

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.fit import fit_parameters
from phaze_opt.validation.operators.family import OperatorFamily
from phaze_opt.validation.operators.prior import fit_with_expectations

FAMILY = OperatorFamily()
TRACE = "operators/tpu-v7-chiplet/device"


@pytest.fixture(scope="module")
def traces():
    (dataset,), _ = read_datasets(None, ("op_tpu_gemm",))
    return [row for row in dataset.rows if row.text("timing") == "device trace"]


def fitted(rows, fit):
    return fit(FAMILY.compile(rows), FAMILY.parameters(rows), FittedConstants({}))


def test_a_launch_that_no_row_shows_stays_near_what_is_usual(traces):
    large = [row for row in traces if row.integer("m") > 512]
    assert len(large) == len(traces) - 1
    free, pulled = (fitted(large, fit).value(TRACE, "launch_s") for fit in (fit_parameters, fit_with_expectations))
    assert free > 2e-5
    assert 1e-6 < pulled < 5e-6


def test_a_launch_that_a_row_shows_is_left_to_it(traces):
    free, pulled = (fitted(traces, fit).value(TRACE, "launch_s") for fit in (fit_parameters, fit_with_expectations))
    assert pulled == pytest.approx(free, rel=0.05)


def test_a_matmul_s_memory_share_follows_the_streams_where_no_row_shows_it():
    (dataset,), _ = read_datasets(None, ("op_llmcompass",))
    own = [row for row in dataset.rows if row.text("hardware") == "MI210" and row.text("n") != "12288"]
    found = FAMILY.fit(own, FittedConstants({})).group("operators/mi210/host")
    assert found["vector_memory_efficiency"] == pytest.approx(0.39, abs=0.02)
    assert found["matmul_memory_efficiency"] == pytest.approx(found["vector_memory_efficiency"], rel=0.5)


def test_a_row_s_latency_that_long_rows_hide_stays_usual():
    (dataset,), _ = read_datasets(None, ("op_llmcompass",))
    norms = [row for row in dataset.rows if (row.text("hardware"), row.text("op")) == ("A100-SXM-80GB", "layernorm")]
    large = [row for row in norms if row.integer("n") >= 4096]
    free, pulled = (
        fitted(large, fit).value("operators/a100-80g/host", "layernorm_block_s")
        for fit in (fit_parameters, fit_with_expectations)
    )
    assert free < 3e-7
    # With short rows too it is 2.9 us.
    assert 1.5e-6 < pulled < 6e-6
