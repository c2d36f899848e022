"""Files of measurements."""

import pytest
from kits.toy_family import HEADER


@pytest.fixture
def write_csv(tmp_path):
    """Writes a CSV file and gives its path."""

    def write(lines, *, header=HEADER, name="op_llmcompass.csv"):
        path = tmp_path / name
        path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
        return path

    return write
