"""Reading files of measurements: strict, every fault one sentence that names file, line and column."""

import csv
import io
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from phaze_opt.errors import InputError
from phaze_opt.hardware.device_catalogue import DeviceCatalogue
from phaze_opt.record.input_files import comma_advice, is_directory, read_text_file, shorten_path
from phaze_opt.record.suggestions import suggest
from phaze_opt.validation.matching_set import guess_like, guess_schema, like_software
from phaze_opt.validation.measured_row import Row, shown
from phaze_opt.validation.packs import pack_folders
from phaze_opt.validation.row_times import check_times, check_training_rows
from phaze_opt.validation.schema import (
    CONTEXT,
    DATASET_SCHEMAS,
    GET_LABORATORY,
    LABORATORY,
    MEMORY,
    NAMED_RUNS,
    SCHEMAS,
    SMALLEST,
    TRAINING,
    ColumnType,
    MeasuredColumn,
    Schema,
    is_slip,
    suggest_column,
)
from phaze_opt.validation.training.named_runs import as_training_row, with_recompute
from phaze_opt.validation.training.row import REFUSAL

KIND = "a CSV file of measurements"
MAX_BYTES = 64 << 20
"""About 300,000 rows."""
MAX_COLUMNS = 1000
"""Ten times those of any kind of file."""
_MARKS = frozenset(";\t|")
"""What separates columns in files that are no CSV."""
Numbered = tuple[int, dict[str, str]]
"""Line and texts of a row."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Measurements of one file.

    Attributes:
        name: stem of the file, under which results are reported.
        schema: kind of the file.
        rows: in the file's order; each says which published set's models predict it.
        unread: columns that are none of the kind's, passed over.
    """

    name: str
    schema: Schema
    rows: tuple[Row, ...]
    unread: tuple[str, ...] = ()

    @property
    def likes(self) -> tuple[str, ...]:
        """Published sets whose models predict its rows, in the file's order; its own name for the published ones."""
        return tuple(dict.fromkeys(row.dataset for row in self.rows))

    @property
    def is_context(self) -> bool:
        """Whether it holds other quantities than latency."""
        return not CONTEXT.isdisjoint(self.likes)

    def under(self, software: Callable[[Row], str]) -> "Dataset":
        """The same with another software for rows of training where one is given; those have it from there on."""
        given = [(row, software(row)) for row in self.rows]
        rows = [
            replace(row, values=MappingProxyType({**row.values, "software": name}), is_guessed=False) if name else row
            for row, name in given
        ]
        return replace(self, rows=tuple(rows)) if self.schema is TRAINING else self

    def of(self, sets: Collection[str]) -> "Dataset":
        """Its rows that are predicted as one of some published sets; named apart if others stay behind."""
        rows = tuple(row for row in self.rows if row.dataset in sets)
        own = replace(self, rows=rows)
        return self if len(rows) == len(self.rows) else replace(own, name=f"{self.name} ({', '.join(own.likes)})")


def read_dataset(path: Path, *, like: str | None = None, machines: DeviceCatalogue | None = None) -> Dataset:
    """Read one file.

    Args:
        path: the file; byte-order mark and any line ends are fine.
        like: published data set whose columns and models it has; by default the one of its name, else each row's is
            told by the file's columns and by its own machine and software. A row that states its software has that.
        machines: what its rows may name; the package's machines unless given.

    Raises:
        InputError: the file or a value is faulty; names file, line and column.
    """
    source = shorten_path(path)
    if like is not None and like not in DATASET_SCHEMAS:
        message = f"no data set is named '{like}'; {suggest(like, DATASET_SCHEMAS)}"
        raise InputError(message, source="--dataset")
    records = _records(read_text_file(path, kind=KIND, max_bytes=MAX_BYTES), source=source)
    line, header = next(records, (1, []))
    if not header:
        message = f"holds nothing but commas and blanks; give {KIND}"
        raise InputError(message, source=source)
    stem, header = path.stem, [name.lower() for name in header]
    schema = NAMED_RUNS if NAMED_RUNS.admits(header) else DATASET_SCHEMAS.get(like or stem) or guess_schema(header)
    is_named = schema is NAMED_RUNS
    fault = _header_fault(header, schema)
    is_other = not schema.admits(header) and any(each.admits(header) for each in SCHEMAS)
    if fault and is_other and like is None and stem in DATASET_SCHEMAS:
        fault = f"{fault} (the file is named as the published set {stem}; under another name it is of another kind)"
    _refuse(fault, source, line)
    # A number blank in a published set was not published, which leaves its row unscored; in others it was forgotten.
    may_lack = stem in DATASET_SCHEMAS and not is_named
    chosen = like or (stem if may_lack else None)
    found = []
    read = [(place, name, schema.columns[name]) for place, name in enumerate(header) if name in schema.columns]
    for number, texts in records:
        _refuse(_row_fault(header, texts, read, may_lack=may_lack), source, number)
        found.append((number, dict(zip(header, texts, strict=True))))
    if not found:
        _refuse(f"has a header but no rows; give {KIND}", source, line)
    if schema is MEMORY:
        found = _with_tables(found, path, source)
    unread = tuple(name for name in header if name not in schema.columns)
    if is_named:
        schema, found = TRAINING, [(number, as_training_row(fields, path.parent)) for number, fields in found]
    rows = []
    for number, fields in found:
        values = MappingProxyType(fields)
        try:
            like_it = _like(schema, values, chosen, machines)
            rows.append(Row(like_it, source, number, values, machines, is_guessed=chosen is None))
        except InputError as error:
            raise InputError(str(error), source=source, line=number) from None
    if is_named:
        rows = [replace(row, values=MappingProxyType(with_recompute(row))) for row in rows]
    if not may_lack:
        # Ids of the published sets are hashes of key columns of their own, which need not tell all rows apart.
        _check_ids(rows, schema)
        told = [row for row in rows if REFUSAL not in row.values]
        if schema.kind == TRAINING.kind:
            check_training_rows(told)
        check_times(told, schema.kind)
    return Dataset(name=stem, schema=schema, rows=tuple(rows), unread=unread)


def _with_tables(found: Sequence[Numbered], path: Path, source: str) -> list[Numbered]:
    """Rows of memory, those that name a row of a training table beside their file with its columns too.

    Raises:
        InputError: the table cannot be read, or has no such row.
    """
    tables: dict[str, dict[str, dict[str, str]]] = {}
    joined = []
    for number, own in found:
        table, name, fields = own.get("table", ""), own.get("id", ""), own
        if table and not own.get("layers", ""):
            if table not in tables:
                _refuse(_table_fault(table), source, number)
                tables[table] = _table(path.with_name(f"{table}.csv"))
            if name not in tables[table]:
                rule = f"column 'id': no row of {table}.csv is named '{shown(name)}'; give the id of one"
                _refuse(rule, source, number)
            fields = {**tables[table][name], **{key: text for key, text in own.items() if text}}
        joined.append((number, fields))
    return joined


def _table(path: Path) -> dict[str, dict[str, str]]:
    """Texts of a table's rows by their ids, whatever its columns: what a run needs of them is found when it is read.

    Raises:
        InputError: it cannot be read, or a row is longer or shorter than its header.
    """
    source = shorten_path(path)
    records = _records(read_text_file(path, kind=KIND, max_bytes=MAX_BYTES), source=source)
    _, header = next(records, (1, []))
    rows = {}
    for number, texts in records:
        if len(texts) != len(header):
            _refuse(f"row has {len(texts)} fields and the header {len(header)}; give as many", source, number)
        fields = dict(zip(header, texts, strict=True))
        rows[fields.get("id", "")] = fields
    return rows


def _table_fault(table: str) -> str:
    """What is wrong with the name of a table; empty if nothing is."""
    if Path(table).name == table:
        return ""
    return f"column 'table': value '{shown(table)}' must be the name of a CSV file in the same folder, without .csv"


def _refuse(rule: str, source: str, line: int) -> None:
    """Raise what is wrong with a line, if anything is."""
    if rule:
        raise InputError(rule, source=source, line=line)


def _like(schema: Schema, values: Mapping[str, str], chosen: str | None, machines: DeviceCatalogue | None) -> str:
    """The published set of one row: of the software that it states, else the one chosen, else a guess."""
    if chosen is None:
        return guess_like(schema, values, machines)
    return (like_software(values) if schema is TRAINING else "") or chosen


def read_datasets(
    path: Path | None, names: Sequence[str] = (), *, machines: DeviceCatalogue | None = None
) -> tuple[tuple[Dataset, ...], tuple[str, ...]]:
    """Read a folder of files, one file, or the package's own data.

    Args:
        path: a folder, a file, or None for the public measurements of the package and of installed packs.
        names: data sets wanted; of a folder which files, of one file as which published set it is predicted.
        machines: what rows may name; the package's machines unless given.

    Returns:
        The data sets in the order of reports, and sentences about files of the folder that were passed over, or about
        published sets that are not installed.

    Raises:
        InputError: a fault of a file, a name that is not there, or a folder without any data set.
    """
    if path is None:
        return _own(tuple(names))
    if is_directory(path):
        read = partial(read_dataset, machines=machines)
        files, note = _files_of(path)
        return _read_files(files, names, read, place=f" in {shorten_path(path)}"), note
    if len(names) > 1:
        message = f"one file is one data set, but {len(names)} names were given; give the one it is like, or a folder"
        raise InputError(message, source="--dataset")
    return (read_dataset(path, like=names[0] if names else None, machines=machines),), ()


def _own(names: Sequence[str]) -> tuple[tuple[Dataset, ...], tuple[str, ...]]:
    """Measurements of the package and of installed packs.

    Raises:
        InputError: a name is of no set, or of one that is not installed; says how to get it.
    """
    with resources.as_file(resources.files("phaze_opt.validation").joinpath("data")) as own:
        files = {name: file for folder in (own, *pack_folders()) for name, file in _files_of(folder)[0].items()}
        missing = [name for name in LABORATORY if name not in files]
        for name in missing:
            if name in names:
                message = f"{name} is a set of the laboratory, which is not installed; {GET_LABORATORY}"
                raise InputError(message, source="--dataset")
        note = f"measurements of GPU kernels, which price no answer, are not installed; {GET_LABORATORY}"
        return _read_files(files, names, _read_once), (note,) if missing and not names else ()


@cache
def _read_once(path: Path) -> Dataset:
    """One of the package's files, which stay as they are while a process runs."""
    return read_dataset(path)


def _files_of(folder: Path) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Files of measurements of a folder by name, and a sentence about the others.

    Raises:
        InputError: the folder cannot be read, or holds no measurements.
    """
    try:
        files = sorted(file for file in folder.iterdir() if not file.name.startswith("."))
    except OSError as error:
        message = f"cannot be read ({error.strerror}); give a folder of CSV files"
        raise InputError(message, source=shorten_path(folder)) from error
    known = {file.stem: file for file in files if file.suffix.lower() == ".csv" and _is_known(file)}
    if not known:
        message = "holds no CSV file of measurements; give one whose columns docs/validation.md names"
        raise InputError(message, source=shorten_path(folder))
    ignored = [file.name for file in files if file not in known.values()]
    note = f"{shorten_path(folder)}: not measurements, passed over: {_few(ignored)}"
    return known, (note,) if ignored else ()


def _read_files(
    known: Mapping[str, Path], names: Sequence[str], read: Callable[[Path], Dataset], *, place: str = ""
) -> tuple[Dataset, ...]:
    """Data sets of files in the order of reports.

    Raises:
        InputError: a name is of none, with a near miss.
    """
    for name in names:
        if name not in known:
            message = f"no data set is named '{name}'{place}; {suggest(name, known)}"
            raise InputError(message, source="--dataset")
    order = {name: index for index, name in enumerate(DATASET_SCHEMAS)}
    wanted = sorted(names or known, key=lambda name: (order.get(name, len(order)), name))
    return tuple(read(known[name]) for name in dict.fromkeys(wanted))


def _is_known(file: Path) -> bool:
    """Whether a file of a folder is a data set: by its name, else by its columns."""
    if file.stem in DATASET_SCHEMAS:
        return True
    try:
        _, header = next(_records(read_text_file(file, kind=KIND, max_bytes=MAX_BYTES), source=""))
    except InputError:
        return False
    return any(schema.admits(map(str.lower, header)) for schema in SCHEMAS)


def _records(text: str, *, source: str) -> Iterator[tuple[int, list[str]]]:
    """Records with the line each begins on; blank lines, and empty fields behind the last name, are passed over."""
    width = 0
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            message = f"is not valid CSV ({error}); close every quote, and double those inside quotes"
            raise InputError(message, source=source, line=line) from None
        if len(fields) > MAX_COLUMNS:
            message = f"has {len(fields):,} columns; at most {MAX_COLUMNS:,} may be: leave out those that nothing reads"
            raise InputError(message, source=source, line=line)
        texts = [field.strip() for field in fields]
        if any(texts):
            width = width or max(place for place, text in enumerate(texts, 1) if text)
            while len(texts) > width and not texts[-1]:
                texts.pop()
            yield line, texts


def _header_fault(header: Sequence[str], schema: Schema) -> str:
    """What is wrong with the names of columns; empty if nothing is."""
    is_table = any(name in schema.columns or is_slip(name, schema) or _MARKS & set(name) for name in header if name)
    if not is_table:
        return (
            f"begins with '{shown(header[0])}' and names no known column; the first line names the columns, as "
            "docs/validation.md has them (hardware, n_devices, layers ...)"
        )
    for number, name in enumerate(header, 1):
        if not name:
            return f"column {number} has no name; name every column"
        if header.index(name) != number - 1:
            return f"column '{shown(name)}' is there twice; leave one out"
        if _MARKS & set(name):
            return f"column '{shown(name)}' is not one column; separate columns by commas"
        if name not in schema.columns and is_slip(name, schema):
            return f"column '{shown(name)}' is unknown in a file of {schema.kind}; {suggest_column(name, schema)}"
    missing = [name for name in schema.required if name not in header]
    needs = f"a file of {schema.kind} needs {', '.join(schema.required)}"
    return f"column '{missing[0]}' is missing; {needs}" if missing else ""


def _row_fault(
    header: Sequence[str], fields: Sequence[str], read: Sequence[tuple[int, str, MeasuredColumn]], *, may_lack: bool
) -> str:
    """What is wrong with a line, of which the columns of the schema are read by their places; empty if nothing is."""
    if len(fields) != len(header):
        at = header[len(fields)] if len(fields) < len(header) else header[-1]
        word = "missing from" if len(fields) < len(header) else "after"
        return f"row has {len(fields)} fields and the header {len(header)}: fields are {word} column '{at}' on"
    for place, name, column in read:
        rule = _fault(fields[place], column, may_lack)
        if rule:
            return f"column '{name}': {rule}"
    return ""


def _fault(text: str, column: MeasuredColumn, may_lack: bool) -> str:
    """What is wrong with a value; empty if nothing is."""
    if not text:
        is_needed = column.is_required and (column.type is ColumnType.TEXT or not may_lack)
        return "is empty; give a value" if is_needed else ""
    if column.words or column.type is ColumnType.TEXT:
        is_known = not column.words or text.lower() in column.words
        return "" if is_known else f"value '{shown(text)}' is unknown; known: {', '.join(column.words)}"
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        return f"value '{shown(text)}' is no finite number; it must be {column.type.value}{comma_advice(text)}"
    if not _is_fine(value, column.type):
        return f"value '{shown(text)}' must be {column.type.value}"
    if value and not SMALLEST <= value <= column.most:
        least = 1 if column.type is ColumnType.COUNT else SMALLEST
        return f"value '{shown(text)}' is beyond what can be measured; it must be from {least:g} to {column.most:g}"
    return ""


def _is_fine(value: float, kind: ColumnType) -> bool:
    """Whether a column of some type takes a number."""
    if kind is ColumnType.COUNT:
        return value >= 1 and value == int(value)
    if kind is ColumnType.FLAG:
        return value in (0, 1)
    return value > 0 if kind is ColumnType.POSITIVE else value >= 0


def _check_ids(rows: Sequence[Row], schema: Schema) -> None:
    """One id is one configuration; it may have been measured more than once."""
    first: dict[str, Row] = {}
    for row in rows:
        if not row.values.get("id"):
            continue
        other = first.setdefault(row.id, row)
        for column in schema.identity:
            if row.text(column, " ") != other.text(column, " "):
                message = (
                    f"column 'id': value '{shown(row.id)}' is the id of line {other.line} too, whose {column} "
                    "differs; give every configuration an id of its own"
                )
                raise InputError(message, source=row.source, line=row.line)


def _few(names: Sequence[str] | Mapping[str, object], limit: int = 5) -> str:
    listed = list(names)
    return ", ".join(listed[:limit]) + (f", and {len(listed) - limit} more" if len(listed) > limit else "")
