"""Changes one thing in a certificate and recomputes every digest, as a careful forger would."""

import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from phaze_opt.certify.certificate import (
    CERTIFICATE_FILE,
    MULTIPLIERS_FILE,
    POINTS_FILE,
    POOL_FILE,
    SOLUTIONS_FILE,
    Certificate,
    content_digest,
)
from phaze_opt.errors import PluginError
from phaze_opt.hardware.constants import load_constants
from phaze_opt.objective.goals import problem_digest
from phaze_opt.record.plain_data import from_plain

OTHER_FILES = (POINTS_FILE, POOL_FILE, MULTIPLIERS_FILE, SOLUTIONS_FILE)


class Forger:
    """A copy of a certificate to be changed."""

    def __init__(self, source: Path, target: Path) -> None:
        shutil.copytree(source, target)
        self.directory = target

    def json(self, name: str, change: Callable[[Any], object]) -> None:
        """Change the contents of a JSON file in place."""
        path = self.directory / name
        data = json.loads(path.read_text())
        change(data)
        path.write_text(json.dumps(data))

    def certificate(self, change: Callable[[Any], object]) -> None:
        self.json(CERTIFICATE_FILE, change)

    def claim(self, **changes: object) -> None:
        self.certificate(lambda data: data["claim"].update(changes))

    def points(self, change: Callable[[dict[str, list]], object]) -> None:
        """Change columns, lists by name."""
        path = self.directory / POINTS_FILE
        table = parquet.read_table(path)
        columns = table.to_pydict()
        change(columns)
        parquet.write_table(pa.table(columns, schema=table.schema), path)

    def cell(self, column: str, row: int, value: object) -> None:
        """Change one number or word; a function is applied to what stands there."""

        def change(columns: dict[str, list]) -> None:
            columns[column][row] = value(columns[column][row]) if callable(value) else value

        self.points(change)

    def read(self, name: str) -> Any:
        return json.loads((self.directory / name).read_text())

    def columns(self) -> dict[str, list]:
        return parquet.read_table(self.directory / POINTS_FILE).to_pydict()

    def multipliers(self, change: Callable[[dict[str, np.ndarray]], object]) -> None:
        path = self.directory / MULTIPLIERS_FILE
        with np.load(path) as archive:
            tables = {name: archive[name].copy() for name in archive.files}
        change(tables)
        np.savez_compressed(path, **tables)

    def pickled_multipliers(self) -> None:
        """An archive whose arrays are pickled objects."""
        with np.load(self.directory / MULTIPLIERS_FILE) as archive:
            tables = {name: archive[name] for name in archive.files}
        with zipfile.ZipFile(self.directory / MULTIPLIERS_FILE, "w") as archive:
            for name, table in tables.items():
                stream = io.BytesIO()
                np.save(stream, table.astype(object), allow_pickle=True)
                archive.writestr(f"{name}.npy", stream.getvalue())

    def truncate(self, name: str) -> None:
        path = self.directory / name
        content = path.read_bytes()
        path.write_bytes(content[: len(content) * 2 // 3])

    def seal(self) -> None:
        """Recompute digests of all files and of the problem; an estimator that nobody has leaves the problem's."""
        path = self.directory / CERTIFICATE_FILE
        data = json.loads(path.read_text())
        for name in OTHER_FILES:
            if (self.directory / name).exists():
                data["files"][name] = hashlib.sha256((self.directory / name).read_bytes()).hexdigest()
        certificate = from_plain(Certificate, data)
        with suppress(PluginError):
            data["problem_digest"] = problem_digest(
                certificate.scenario, load_constants(), space=certificate.space, goal=certificate.goal
            )
        path.write_text(json.dumps(data))
        self.sign()

    def sign(self) -> None:
        """Recompute the certificate's digest of itself, and no other."""
        path = self.directory / CERTIFICATE_FILE
        data = json.loads(path.read_text())
        path.write_text(json.dumps(data | {"digest": content_digest(data)}))
