"""Changes one thing in a certificate and recomputes every digest, as a careful forger would; the sentence it earns."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from phaze_opt.certify.certificate import (
    CERTIFICATE_FILE,
    DATA_FILES,
    MULTIPLIERS_FILE,
    POINTS_FILE,
    Certificate,
    content_digest,
)
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.errors import CertificateError, PluginError
from phaze_opt.objective.goals import problem_digest
from phaze_opt.record.plain_data import from_plain

UPPER, ATTAINED = "throughput_upper_samples_per_s", "throughput_samples_per_s"
AREA, TDP, MEMORY = "over the area budget", "over the TDP budget", "no placement fits the memory"
RECOMPUTED = f"{UPPER} is .* but its multipliers give"
REPLAYED = f"{ATTAINED} is .* but its solution attains"
FEASIBLE = {"reason": "", "status": "pruned-by-bound", "bound": "relaxed"}
SOLVED = {"status": "solved"}
ANY = r"\d+"


def times(factor: float) -> Callable[[float], float]:
    return lambda value: value * factor


class Forger:
    """A copy of a certificate to be changed."""

    def __init__(self, source: Path, target: Path) -> None:
        shutil.copytree(source, target)
        self.directory = target

    def json(self, name: str, change: Callable[[Any], object]) -> None:
        """Change the contents of a JSON file in place."""
        data = self.read(name)
        change(data)
        (self.directory / name).write_text(json.dumps(data))

    def certificate(self, change: Callable[[Any], object]) -> None:
        self.json(CERTIFICATE_FILE, change)

    def put(self, place: str, value: object, *, name: str = CERTIFICATE_FILE) -> None:
        """Put a value at a dotted place of a JSON file; a function is applied to what stands there."""

        def change(data: Any) -> None:
            *path, last = (int(key) if key.lstrip("-").isdigit() else key for key in place.split("."))
            for key in path:
                data = data[key]
            if last == "+":
                data.append(value)
            else:
                data[last] = value(data[last]) if callable(value) else value

        self.json(name, change)

    def claim(self, **changes: object) -> None:
        self.certificate(lambda data: data["claim"].update(changes))

    def table(self, change: Callable[[pa.Table], pa.Table]) -> None:
        path = self.directory / POINTS_FILE
        parquet.write_table(change(parquet.read_table(path)), path)

    def points(self, change: Callable[[dict[str, list]], object]) -> None:
        """Change columns, lists by name."""

        def of_table(table: pa.Table) -> pa.Table:
            columns = table.to_pydict()
            change(columns)
            return pa.table(columns, schema=table.schema)

        self.table(of_table)

    def cells(self, row: int, **values: object) -> int:
        """Change numbers and words of a row, which is returned; a function is applied to what stands there."""

        def change(columns: dict[str, list]) -> None:
            for name, value in values.items():
                columns[name][row] = value(columns[name][row]) if callable(value) else value

        self.points(change)
        return row

    def read(self, name: str) -> Any:
        return json.loads((self.directory / name).read_text())

    def columns(self) -> dict[str, list]:
        return parquet.read_table(self.directory / POINTS_FILE).to_pydict()

    def row(self, **wanted: object) -> int:
        """First row with these words."""
        columns = self.columns()
        return next(i for i in columns["index"] if all(columns[name][i] == value for name, value in wanted.items()))

    def multipliers(self, change: Callable[[dict[str, np.ndarray]], object]) -> None:
        path = self.directory / MULTIPLIERS_FILE
        with np.load(path) as archive:
            tables = {name: archive[name].copy() for name in archive.files}
        change(tables)
        np.savez_compressed(path, **tables)

    def truncate(self, name: str) -> None:
        path = self.directory / name
        content = path.read_bytes()
        path.write_bytes(content[: len(content) * 2 // 3])

    def seal(self) -> None:
        """Recompute digests of all files and of the problem; an estimator that nobody has leaves the problem's."""

        def change(data: Any) -> None:
            for name in DATA_FILES:
                if (self.directory / name).exists():
                    data["files"][name] = hashlib.sha256((self.directory / name).read_bytes()).hexdigest()
            forged = from_plain(Certificate, data)
            with suppress(PluginError):
                constants = forged.scenario.constants_of()
                digest = problem_digest(
                    forged.scenario, constants, space=forged.space, goal=forged.goal, axes=forged.axes
                )
                data["problem_digest"] = digest

        self.certificate(change)
        self.sign()

    def sign(self) -> None:
        """Recompute the certificate's digest of itself, and no other."""
        self.certificate(lambda data: data.update(digest=content_digest(data)))

    def assert_refused(self, file: str, rule: str, *, row: int | str | None = None, is_sealed: bool = True) -> None:
        """The check refuses it in one sentence: file, row if any, and rule, a regular expression."""
        if is_sealed:
            self.seal()
        with pytest.raises(CertificateError) as refused:
            check_certificate(self.directory)
        sentence = str(refused.value)
        assert sentence.endswith("; the certificate is refused")
        assert "\n" not in sentence
        where = re.escape(file) + ("" if row is None else f", row {row}")
        assert re.match(f"^{where}: {rule}", sentence), sentence
