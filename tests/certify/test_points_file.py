"""Reading the table of points: by files of the library's own, which outlive no interpreter."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from phaze_opt.certify.prove import point_columns
from phaze_opt.errors import InputError


def test_points_are_read_from_no_file_of_python(tmp_path, monkeypatch):
    """Threads of the library let go of such a file when they like, which aborts a process that is ending."""
    folder = tmp_path / "a.py:B"
    folder.mkdir()
    pq.write_table(pa.table({"tdp_w": [1.0, 2.0], "status": [0, 1]}), pa.OSFile(str(folder / "points.parquet"), "wb"))
    read, given = pq.read_table, []
    monkeypatch.setattr(pq, "read_table", lambda file, **options: given.append(file) or read(file, **options))
    (column,) = point_columns(folder, ("tdp_w",))
    assert column.tolist() == [1.0, 2.0]
    (file,) = given
    assert isinstance(file, pa.NativeFile)
    assert not isinstance(file, pa.PythonFile)
    with pytest.raises(InputError, match="is not a table of points"):
        point_columns(tmp_path, ("tdp_w",))
