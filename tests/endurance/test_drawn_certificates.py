"""Certificates of drawn problems pass the check, and what is forged of each of their files is refused.

CERTIFICATES says how many, 4 unless given, FORGERIES how many of each file of one, 3 unless given;
KEEP_FORGERIES=folder keeps those that a check accepts, RECORD=folder the counts as JSON.
"""

import hashlib
import json
import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from draft import Draft, Forgery, NotApplicableError
from drawn_certificates import WORLDS, Original, draw_certificate
from forged_claims import ROWS, STATEMENTS
from forged_fronts import FRONTS
from forged_proofs import MULTIPLIERS, POOLS, SOLUTIONS

from phaze_opt.certify.certificate import (
    CERTIFICATE_FILE,
    FRONT_FILE,
    MULTIPLIERS_FILE,
    POINTS_FILE,
    POOL_FILE,
    SOLUTIONS_FILE,
    content_digest,
)
from phaze_opt.errors import CertificateError

NUM_CERTIFICATES = int(os.environ.get("CERTIFICATES", "4"))
FIRST_CERTIFICATE = int(os.environ.get("FIRST_CERTIFICATE", "0"))
NUM_FORGERIES = int(os.environ.get("FORGERIES", "3"))
ATTEMPTS = 200
"""Draws for one forgery that a certificate has something for."""
FORGERIES: dict[str, tuple[Forgery, ...]] = {
    CERTIFICATE_FILE: STATEMENTS,
    POINTS_FILE: ROWS,
    POOL_FILE: POOLS,
    MULTIPLIERS_FILE: MULTIPLIERS,
    SOLUTIONS_FILE: SOLUTIONS,
}


@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(FIRST_CERTIFICATE, FIRST_CERTIFICATE + NUM_CERTIFICATES))
def test_a_drawn_certificate_holds_and_its_forgeries_are_refused(number: int, tmp_path: Path) -> None:
    original = draw_certificate(number, tmp_path / "certificates")
    original.check(original.directory)
    assert_sealing_changes_nothing(original, tmp_path / "copy")
    counts, accepted = Counter[str](), []
    for name in (*FORGERIES, *([FRONT_FILE] if original.kind == WORLDS else [])):
        for each in range(NUM_FORGERIES):
            target = tmp_path / "forged"
            what = forge(original, target, name, f"{number}:{name}:{each}")
            counts[f"{original.kind} {name} {what}"] += 1
            try:
                original.check(target)
            except CertificateError as error:
                assert str(error).endswith("; the certificate is refused"), (what, str(error))
            else:
                accepted.append(f"{name}, {each}: {what}")
                keep(target, f"{number}-{name}-{each}-{what}")
    record(number, counts)
    assert not accepted


def assert_sealing_changes_nothing(original: Original, target: Path) -> None:
    """A copy with its claim and its digests made again holds: forgeries are refused for what they state."""
    shutil.copytree(original.directory, target)
    place = target / original.statement.relative_to(original.directory)
    shutil.rmtree(place)
    draft = Draft(original, place, random.Random(0))
    draft.claim_again()
    seal(original, target, draft)
    original.check(target)


def seal(original: Original, target: Path, draft: Draft) -> None:
    """Put every digest right, that of a world in the statement of its front too."""
    draft.seal()
    if original.kind == WORLDS:
        digest = hashlib.sha256((draft.directory / CERTIFICATE_FILE).read_bytes()).hexdigest()
        content = json.loads((target / FRONT_FILE).read_text())
        content["files"][draft.directory.relative_to(target).as_posix()] = digest
        write_front(target, content)


def forge(original: Original, target: Path, name: str, seed: str) -> str:
    """Forge a copy of a certificate in one of its files, and put every digest right; the forgery's name."""
    for attempt in range(ATTEMPTS):
        rng = random.Random(f"{seed}:{attempt}")
        shutil.rmtree(target, ignore_errors=True)
        try:
            if name == FRONT_FILE:
                return forge_front(original, target, rng)
            shutil.copytree(original.directory, target)
            place = target / original.statement.relative_to(original.directory)
            shutil.rmtree(place)
            draft, how = Draft(original, place, rng), rng.choice(FORGERIES[name])
            how(draft)
        except NotApplicableError:
            continue
        seal(original, target, draft)
        return how.__name__
    raise AssertionError(f"nothing of {name} could be forged")


def forge_front(original: Original, target: Path, rng: random.Random) -> str:
    """Forge the statement of a front over worlds."""
    shutil.copytree(original.directory, target)
    content, how = json.loads((target / FRONT_FILE).read_text()), rng.choice(FRONTS)
    how(content, rng)
    write_front(target, content)
    return how.__name__


def write_front(directory: Path, content: dict[str, object]) -> None:
    content["digest"] = content_digest(content)
    (directory / FRONT_FILE).write_text(json.dumps(content))


def keep(directory: Path, name: str) -> None:
    """For whoever mends it."""
    if (folder := os.environ.get("KEEP_FORGERIES")) is not None:
        shutil.copytree(directory, Path(folder) / name, dirs_exist_ok=True)


def record(number: int, counts: Counter[str]) -> None:
    """Write the counts, if they are wanted."""
    if (folder := os.environ.get("RECORD")) is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"forgeries-{number}.json").write_text(json.dumps(counts) + "\n")
