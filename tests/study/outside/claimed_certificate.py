"""Certificates that claim what a test wants, with rows that say so: whole and consistent, but proofs of nothing."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from phaze_opt.certify.certificate import FORMAT, Certificate, CertificateProvenance, Claim, content_digest
from phaze_opt.certify.check.files import keep_check
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import Scenario
from phaze_opt.record.plain_data import to_plain
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.workload.config import load_model

PROVENANCE = CertificateProvenance("1.0", "3.11", "highs", 5, 9, 2.5)


def claim_of(space: SearchSpace, index: int, value: float, value_upper: float, *, tolerance: float = 0.01) -> Claim:
    """The claim that a point is best."""
    gap = value_upper / value - 1.0
    point, is_proved = space.point(index), gap <= tolerance
    return Claim(True, index, point, value, value_upper, value, gap, tolerance, is_proved, space.size, 1)


def nothing_of(space: SearchSpace) -> Claim:
    """The claim that nothing is feasible."""
    return Claim(False, -1, None, 0.0, 0.0, 0.0, 0.0, 0.01, True, space.size, 0)


def write_certificate(directory: Path, claim: Claim, digest: str, *, space: SearchSpace) -> Path:
    """All files that a study reads, of the claim's problem by digest and of any scenario."""
    directory.mkdir(parents=True)
    for name in ("pool.json", "multipliers.npz", "solutions.json"):
        (directory / name).write_text("{}")
    parquet.write_table(_rows(claim, space), directory / "points.parquet")
    cluster = Cluster(4, load_network("two-level", num_devices=4, constants=load_constants()))
    certificate = Certificate(
        format=FORMAT,
        claim=claim,
        goal=Goal.THROUGHPUT,
        scenario=Scenario((load_model("tiny"),), cluster, 32),
        space=space,
        constants_digest="of constants",
        problem_digest=digest,
        slots=(),
        files={path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(directory.iterdir())},
        provenance=PROVENANCE,
    )
    certificate = replace(certificate, digest=content_digest(to_plain(Certificate, certificate)))
    (directory / "certificate.json").write_text(json.dumps(to_plain(Certificate, certificate)))
    keep_check(directory, certificate.digest)
    return directory


def _rows(claim: Claim, space: SearchSpace) -> pa.Table:
    indices = np.arange(space.size, dtype=np.int64)
    points = space.points_at(indices)
    narrow = ("num_tc", "num_vc", "tc_width", "tc_depth", "vc_width", "micro_batch")
    attained, is_solved = np.zeros(space.size), indices == claim.incumbent
    attained[is_solved] = claim.value
    return pa.table(
        {
            "index": indices,
            **{name: np.array([getattr(point, name) for point in points], dtype=np.int32) for name in narrow},
            **{name: np.array([getattr(point, name) for point in points]) for name in ("glb_bytes", "hbm_bytes")},
            "area_mm2": np.ones(space.size),
            "tdp_w": np.ones(space.size),
            "throughput_samples_per_s": attained,
            "throughput_upper_samples_per_s": np.full(space.size, claim.value_upper),
            "status": ["solved" if solved else "pruned-by-bound" for solved in is_solved],
            "bound": ["relaxed" if claim.is_feasible else "none"] * space.size,
            "reason": ["" if claim.is_feasible else "over the area budget"] * space.size,
            "multipliers_index": np.full(space.size, 0 if claim.is_feasible else -1, dtype=np.int32),
        }
    )
