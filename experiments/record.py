"""Writes the records of experiments/ anew, and prints what moved and by how much.

    python experiments/record.py                          (all of them: hours; the same as `make record`)
    python experiments/record.py bert-large certified/dense per-model-vs-common
    python experiments/record.py --list
    python experiments/record.py --changes --against da976f0

A record is made in a copy of the repository and put in place when all of it is there. What the same code has finished
is not made again unless `--again` is given: the work directory holds the digest of package, scripts, inputs, commands
and versions that made it, and of the files it is. Ctrl-C keeps what is finished, and the next run goes on.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from recording.declared import RECORDS, Piece, Record, choose
from recording.making import MakingError, is_finished, log_file, make
from recording.moved_table import RecordChange, change_of, closing_lines, lines_of

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import shorten_path
from phaze_opt.record.lock import locked

ROOT = Path(__file__).resolve().parents[1]
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


def main() -> None:
    """Make what is asked for and say what moved; the exit code says whether all of it was made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", help="records, groups or models, also separated by commas; all unless given"
    )
    parser.add_argument("--again", action="store_true", help="make what the same code has finished too")
    parser.add_argument("--list", action="store_true", help="say what can be made and about how long it takes")
    parser.add_argument("--changes", action="store_true", help="make nothing, and say what has moved")
    parser.add_argument("--against", default="HEAD", metavar="COMMIT", help="what moved is told against it")
    parser.add_argument("--most", type=int, default=10, metavar="N", help="figures shown of a record")
    parser.add_argument(
        "--work-dir", type=Path, default=ROOT / "record-output", help="of copies, logs and what is finished"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(run(options))
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(BAD_INPUT)


def run(options: argparse.Namespace, *, records: Sequence[Record] = RECORDS, root: Path = ROOT) -> int:
    """Do what the options ask for; the exit code."""
    pieces = choose([name for text in options.names for name in text.split(",") if name], records)
    if options.list:
        _list(pieces)
        return 0
    code = 0
    if not options.changes:
        busy = "another run writes records here; wait for it, or choose another --work-dir"
        with locked(options.work_dir / "lock", busy=busy):
            code = _make_all(pieces, root, options.work_dir.resolve(), is_again=options.again)
    _tell(pieces, root, options.against, most=options.most)
    return code


def _list(pieces: Sequence[Piece]) -> None:
    """Names, minutes, and the models that a record may be written anew for."""
    for piece in pieces:
        record = piece.record
        models = f"  ({', '.join(record.models)})" if record.models and not piece.model else ""
        minutes = "part" if piece.model else f"{record.minutes:g}"
        print(f"{minutes:>5} min  {piece.name}{models}")
    print(f"{sum(piece.record.minutes for piece in pieces if not piece.model) / 60:.1f} h on two cores")


def _make_all(pieces: Sequence[Piece], root: Path, work_dir: Path, *, is_again: bool) -> int:
    """One after the other; a piece that fails is told of, and the others go on."""
    code = 0
    for number, piece in enumerate(pieces, start=1):
        place = f"[{number}/{len(pieces)}] {piece.name}"
        if not is_again and is_finished(piece, root, work_dir):
            print(f"{place}: finished before, by the same code", flush=True)
            continue
        print(f"{place}: about {piece.record.minutes:g} min for the whole record", flush=True)
        try:
            print(f"{place}: written in {make(piece, root, work_dir):.0f} s", flush=True)
        except MakingError as error:
            code = FAILED
            print(
                f"{place}: failed, and its files stay as they were: {error} (all output: {_log(piece, work_dir)})",
                flush=True,
            )
        except KeyboardInterrupt:
            print(f"{place}: interrupted; what was finished is kept, and the next run goes on from there", flush=True)
            return INTERRUPTED
    return code


def _log(piece: Piece, work_dir: Path) -> str:
    return shorten_path(log_file(piece, work_dir))


def _tell(pieces: Sequence[Piece], root: Path, revision: str, *, most: int) -> None:
    """What moved, record by record and in sum."""
    changes: list[RecordChange] = []
    print(f"\nAgainst {revision}:")
    for record in dict.fromkeys(piece.record for piece in pieces):
        changes.append(change_of(record, root, revision))
        print("\n".join(lines_of(changes[-1], most=most)))
    print("\n".join(closing_lines(changes)))


if __name__ == "__main__":
    main()
