"""Draw the package's sample of public kernel timings: by hash within every table, machine, type and library.

    python lab/experiments/draw_kernels.py FOLDER

FOLDER holds the tables named in lab/phaze_opt_lab/data/README.md in the columns that `phaze-opt validate` reads.
Writes op_modern.csv, attn_modern.csv and moe_modern.csv into the laboratory's data. A row keeps what its prediction
reads; what its note says of library and quantisation stands in columns.
"""

import csv
import hashlib
import sys
from pathlib import Path

import phaze_opt_lab
from phaze_opt.errors import InputError
from phaze_opt.validation.dataset import read_dataset
from phaze_opt.validation.measured_row import Row
from phaze_opt_lab.modern.cases import ATTENTION, EXPERTS, KINDS, OPERATORS, KernelCase, read_case
from phaze_opt_lab.modern.recipes import is_suspect
from phaze_opt_lab.modern.shapes import operator_name, row_format

MOST = {"matmul": 80, "attention": 40, "experts": 60, "stream": 34}
"""Rows of one table, machine, type and library."""
COLUMNS = {
    OPERATORS: "id hardware op b m n k dtype latency_us timing library quantised source",
    ATTENTION: "id hardware op b seq_q seq_kv heads kv_heads head_dim head_dim_v causal window dtype latency_us timing "
    "library source",
    EXPERTS: "id hardware op tokens hidden ffn experts experts_per_token tp ep mlp_matrices distribution dtype "
    "latency_us timing library source",
}


def stratum(row: Row, case: KernelCase) -> tuple[str, ...]:
    """Table, machine, operator, type, library and clock of a row."""
    return Path(row.source).stem, row.text("hardware"), operator_name(row), row.text("dtype"), case.recipes[0]


def fields(row: Row, case: KernelCase) -> dict[str, str]:
    """A row as the sample has it."""
    values = dict(row.values)
    values["timing"] = "host" if case.recipe.is_eager else "device"
    values["library"] = case.recipe.library
    values["quantised"] = "1" if case.recipe.is_quantised else "0"
    values["source"] = Path(row.source).stem
    values["dtype"] = str(row_format(row))
    if operator_name(row).startswith("grouped") and "M a group" in row.text("note", ""):
        values["m"] = str(row.integer("m") * row.integer("b"))
    if row.dataset == OPERATORS and not row.text("b", ""):
        values["b"] = "1"
    for column in ("head_dim_v", "head_dim"), ("seq_kv", "seq_q"), ("kv_heads", "heads"):
        if row.dataset == ATTENTION and values.get(column[0]) == values.get(column[1]):
            values[column[0]] = ""
    if values.get("window") == "0":
        values["window"] = ""
    return values


def draw(folder: Path) -> dict[str, list[dict[str, str]]]:
    """Rows of the sample by data set."""
    found: dict[tuple[str, ...], list[tuple[str, Row, KernelCase]]] = {}
    for path in sorted(folder.glob("*.csv")):
        if not path.stem.startswith(("op_", "attn_", "moe_")):
            continue
        for row in read_dataset(path).rows:
            case = read_case(row) if row.dataset in KINDS else "of another family"
            if isinstance(case, str) or is_suspect(row):
                continue
            key = hashlib.sha256(f"{path.stem}|{row.line}|{row.joined('id', 'latency_us')}".encode()).hexdigest()
            found.setdefault(stratum(row, case), []).append((key, row, case))
    drawn: dict[str, list[dict[str, str]]] = {name: [] for name in COLUMNS}
    for _, rows in sorted(found.items()):
        chosen = sorted(rows, key=lambda each: each[0])[: MOST[rows[0][2].kernel]]
        for _, row, case in sorted(chosen, key=lambda each: each[1].line):
            drawn[row.dataset].append(fields(row, case))
    return drawn


def main(arguments: list[str]) -> None:
    """Write the three files."""
    drawn = draw(Path(arguments[0])) if len(arguments) == 1 else {}
    if not any(drawn.values()):
        message = "give the folder of the tables; nothing was drawn, and nothing is written"
        raise InputError(message)
    target = Path(phaze_opt_lab.__file__).parent / "data"
    for name, rows in drawn.items():
        with (target / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, COLUMNS[name].split(), extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        print(name, len(rows), "rows")


if __name__ == "__main__":
    main(sys.argv[1:])
