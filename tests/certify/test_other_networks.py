"""Proofs and their checks on levels with measured curves and on levels that collectives cross in chunks."""

import json

import pytest
from small_problems import brute_force, small_problem, small_scenario, small_space

from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.problem import CertifyOptions
from phaze_opt.certify.prove import certify

CHUNKED = """name = "torus"
chunking = "themis"
[[dimensions]]
topology = "ring"
size = 4
bandwidth_gb_per_s = 40
latency_us = 1
[[dimensions]]
topology = "ring"
size = 1
bandwidth_gb_per_s = 40
latency_us = 1
"""


@pytest.mark.parametrize("kind", ["measured", "chunked"])
def test_a_proof_equals_brute_force_and_its_check_passes(kind, tmp_path):
    network = "dgx-a100"
    if kind == "chunked":
        network = str(tmp_path / "torus.toml")
        (tmp_path / "torus.toml").write_text(CHUNKED, encoding="utf-8")
    scenario = small_scenario(devices=16, network=network, tensor_parallel=(1, 2, 8))
    problem = small_problem(scenario, small_space())
    result = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path / "proofs"))
    values, _ = brute_force(problem)
    assert result.certificate.claim.is_proved
    assert result.certificate.claim.value == pytest.approx(max(values), rel=1e-9)
    check_certificate(result.directory)
    kept = json.loads((result.directory / "certificate.json").read_text(encoding="utf-8"))
    assert ("curve" if kind == "measured" else "chunking") in json.dumps(kept)
