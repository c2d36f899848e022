"""Compares what every command answers with what is kept here, or keeps it anew: `make goldens` [WRITE=1].

A command is a new process in the folder of its run (runs.toml), without a network. Numbers are equal to 1e-12; times of
the clock, paths, digests, versions and dates play no part. A difference is one line: run, key, old, new. Kept
certificates must pass `certify --check`.
"""

import argparse
import json
import math
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
KEPT, CERTIFICATES = HERE / "kept", HERE / "certificates"
RENAMED: dict[str, str] = {}
"""Keys that were renamed, old to new: kept files have the old ones until they are kept anew."""
RELATIVE, ABSOLUTE = 1e-12, 1e-15
"""The second is for gaps, which are differences of equal numbers near 1."""
APART = re.compile(
    r"(^|_)(wall_s|charged_s|overhead_s|spent_s|age_s|seconds_to\w*|crc32|digest|search_id|study_id|run_id|version|date|tracking_uri)$"
)
"""Keys whose values play no part."""
CLOCK, DIGEST = re.compile(r"\b\d[\d.,]* (ms|s|min|h)\b"), re.compile(r"\b[0-9a-f]{8,64}\b")
MOST_ROWS = 3
"""Of a list of objects so many are kept, and how many there are."""
ABSENT = "(absent)"
OFFLINE = """
import socket, sys
from phaze_opt.cli.main import main
def refuse(*_, **__):
    raise OSError("goldens are made offline")
socket.socket.connect = refuse
main(sys.argv[1:])
"""


def main() -> None:
    """Run what is asked for; exit code 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="RUN", help="all unless given")
    parser.add_argument("--write", action="store_true", help="keep what is answered now")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    runs = tomllib.loads((HERE / "runs.toml").read_text(encoding="utf-8"))
    names = options.names or list(runs)
    if unknown := set(names) - set(runs):
        parser.error(f"no run is named {min(unknown)}; known: {', '.join(runs)}")
    began, lines = time.monotonic(), []
    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(partial(settle, runs=runs, is_write=options.write), names):
            lines += found
            sys.stdout.writelines(f"{line}\n" for line in found)
    took = f"{len(names)} runs in {time.monotonic() - began:.0f} s"
    sys.stdout.write(f"{took}: {len(lines)} differences{' kept' if options.write else ''}\n")
    sys.exit(1 if lines and not options.write else 0)


def settle(name: str, runs: dict[str, str | list[str]], *, is_write: bool) -> list[str]:
    """The differences of one run, and of the certificate that is kept of it; they are kept where asked for."""
    commands = [runs[name]] if isinstance(runs[name], str) else runs[name]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        new = [{"command": command, **answer(command, folder)} for command in commands]
        kept = KEPT / f"{name}.json"
        old = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else []
        lines = [f"{name} {line}" for line in differences(renamed(old), new, "")]
        made, proof = made_certificate(folder), CERTIFICATES / f"{name}.tar.xz"
        if is_write:
            kept.write_text(json.dumps(new, indent=0, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")
            if made.exists():
                with tarfile.open(proof, "w:xz") as archive:
                    archive.add(made, "certificate")
        if proof.exists():
            with tarfile.open(proof) as archive:
                archive.extractall(folder, filter="data")
            check = answer(f"certify --check {folder / 'certificate'}", folder)
            if check["exit_code"]:
                lines.append(f"{name} the kept certificate: valid, {_short(check['answer'])}")
    return lines


def made_certificate(folder: Path) -> Path:
    """The certificate that commands left in a folder, of worlds where there is one; else a path of nothing."""
    whole = [each for form in ("robust/*/", "*/") for each in folder.glob(f"phaze-opt-certificates/{form}")]
    return next((each for each in whole if each.name[0] != "." and each.name != "robust"), folder / "none")


def answer(command: str, folder: Path) -> dict[str, Any]:
    """What a command ends with: its exit code, and its line of JSON or, where it prints none, its sentence."""
    made = made_certificate(folder)
    words = shlex.split(command.format(here=HERE, repository=REPOSITORY, certificate=made))
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, *words, "--json"], cwd=folder, capture_output=True, text=True, check=False
    )
    line = json.loads(done.stdout) if done.stdout else done.stderr
    return {"exit_code": done.returncode, "answer": plain(line, folder)}


def plain(value: Any, folder: Path) -> Any:
    """A value without what differs from run to run."""
    if isinstance(value, dict):
        return {key: "apart" if APART.search(key) else plain(each, folder) for key, each in value.items()}
    if isinstance(value, list):
        few = [plain(each, folder) for each in value[: MOST_ROWS if value and isinstance(value[0], dict) else None]]
        return few if len(few) == len(value) else [*few, f"{len(value)} in all"]
    if isinstance(value, str):
        for path, name in ((folder, "{folder}"), (HERE, "{here}"), (REPOSITORY, "{repository}")):
            value = value.replace(str(path), name)
        return DIGEST.sub("DIGEST", CLOCK.sub("TIME", value))
    return value


def renamed(value: Any) -> Any:
    """A kept value under the keys of today."""
    if isinstance(value, dict):
        return {RENAMED.get(key, key): renamed(each) for key, each in value.items()}
    return [renamed(each) for each in value] if isinstance(value, list) else value


def differences(old: Any, new: Any, key: str) -> Iterator[str]:
    """A line for each: key, old and new value."""
    if isinstance(old, list) and isinstance(new, list):
        old, new = (dict(enumerate(each)) for each in (old, new))
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from differences(old.get(name, ABSENT), new.get(name, ABSENT), f"{key}/{name}" if key else f"{name}")
    elif not _is_same(old, new):
        yield f"{key}: {_short(old)}, {_short(new)}"


def _is_same(old: Any, new: Any) -> bool:
    numbers = [isinstance(each, int | float) and not isinstance(each, bool) for each in (old, new)]
    if all(numbers):
        return math.isclose(old, new, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(old) is type(new) and bool(old == new)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


if __name__ == "__main__":
    main()
