"""Price published measurements of sources that nothing was fitted to, and write the errors down before anything is.

    python experiments/validation/blind.py FOLDER [FOLDER ...] [--machine FILE ...]

Every CSV file of the folders is validated by itself (`phaze-opt validate --data FILE`), by the rules of its own rows. A
file that is refused is recorded with the reason. A column `licence` is left out, which was unknown when the errors were
frozen. Writes blind.json: for each table its rows, the error, bias and rank, and those of the trivial model.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from phaze_opt.record.whole_file import replace_file

FIGURES = ("rows", "scored", "mape", "median_ape", "p90_ape", "bias", "spearman", "baseline_mape")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--machine", action="append", default=[], type=Path)
    parser.add_argument("--commit", default="", help="what the package was then, for the record")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("blind.json"))
    arguments = parser.parse_args()
    tables = {}
    for folder in arguments.folders:
        for path in sorted(folder.glob("*.csv")):
            tables[path.stem] = table_errors(path, arguments.machine)
            print(path.stem, tables[path.stem], flush=True)
    meta = {
        "versions": {name: version(name) for name in ("phaze-opt", "numpy")},
        "figures": "errors in per cent",
        "commit": arguments.commit,
    }
    replace_file(arguments.out, json.dumps({"_meta": meta, "tables": tables}, indent=1) + "\n")


def table_errors(path: Path, machines: list[Path]) -> dict[str, Any]:
    """Return the figures of one file, or why it was refused."""
    flags = [flag for machine in machines for flag in ("--machine", str(machine))]
    with tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch) / path.name
        write_without_licence(path, table)
        command = [sys.executable, "-m", "phaze_opt", "validate", "--data", str(table), *flags, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"refused": done.stderr.strip().splitlines()[-1].replace(f"{scratch}/", "")}
    (figures,) = json.loads(done.stdout)["datasets"].values()
    return {name: rounded(figures[name]) for name in FIGURES if name in figures}


def write_without_licence(path: Path, to: Path) -> None:
    with path.open(newline="") as source, to.open("w", newline="") as target:
        rows = csv.DictReader(source)
        names = [name for name in rows.fieldnames or () if name != "licence"]
        writer = csv.DictWriter(target, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def rounded(value: float | None) -> float | None:
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
