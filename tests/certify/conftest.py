"""Makes the folder's shared toys importable; certificates to be checked and forged."""

from pathlib import Path

import pytest
from forger import Forger
from forger_originals import COMMON, HOPELESS, TYPED, write_small_certificate


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small valid certificates by kind."""
    directory = tmp_path_factory.mktemp("certificates")
    return {kind: write_small_certificate(kind, directory) for kind in (TYPED, COMMON, HOPELESS)}


@pytest.fixture
def forger(certificates: dict[str, Path], tmp_path: Path) -> Forger:
    """A copy of one of them to be changed."""
    return Forger(certificates[TYPED], tmp_path / "forged")
