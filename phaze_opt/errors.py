"""The exception tree. Infeasibility is a value (a status with a reason), never an exception.

PhazeOptError
├── InputError           something the user gave is wrong (exit code 2)
│   ├── RefusedPlanError rules of a software's launcher leave no plan
│   ├── NothingLeftError budgets leave no design of a space (exit code 3)
│   └── CertificateError a certificate does not prove what it claims
├── PluginError          a requested plug-in is unknown or fails to load (exit code 2)
│   └── PluginFaultError code of a plug-in raised an error, which is the cause
├── SolverError          a solver gave no usable answer
├── StorageError         a database that studies share failed; what is finished is kept
├── VerificationError    an independent check disagrees with a result: a bug
└── TrackingError        a tracker could not record; never reaches a search's result
"""

from typing import Any

_MAX_CHARACTERS, _MAX_KEY_CHARACTERS = 1000, 120


class PhazeOptError(Exception):
    """Root of every error that this package raises on purpose; it travels between processes with all it holds."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Build the same error without calling ``__init__``, which may take other arguments."""
        return _rebuild, (type(self), self.args), self.__dict__


def _rebuild(kind: type[PhazeOptError], args: tuple[Any, ...]) -> PhazeOptError:
    """An error as it was pickled."""
    error = kind.__new__(kind)
    error.args = args
    return error


def _cut(text: str, most: int) -> str:
    """A text without what is beyond a length."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


class InputError(PhazeOptError):
    """A file, an option or an argument breaks a rule.

    Args:
        message: one sentence: what was given, the rule it broke, what to do.
        source: the file or option it came from, if any.
        line: line in ``source``, one-based.
        key: key or field in ``source``.
    """

    def __init__(
        self, message: str, *, source: str | None = None, line: int | None = None, key: str | None = None
    ) -> None:
        """Prefix the message with where the fault is; what a file makes long is cut."""
        where = "" if source is None else source
        if line is not None:
            where = f"{where}:{line}"
        if key is not None:
            shown = _cut(key, _MAX_KEY_CHARACTERS)
            where = f"{where}: key '{shown}'" if where else f"'{shown}'"
        sentence = _cut(message, _MAX_CHARACTERS)
        super().__init__(f"{where}: {sentence}" if where else sentence)
        self.source = source
        self.line = line
        self.key = key


class RefusedPlanError(InputError):
    """Rules of a software's launcher leave no plan of what was asked for; other software may have one."""


class NothingLeftError(InputError):
    """Budgets leave no design of a space."""


class CertificateError(InputError):
    """A certificate is refused; the message names the file, the row if there is one, and the rule broken.

    Args:
        rule: what is wrong, as the end of a sentence.
        file: name of the certificate's file.
        row: row of ``points.parquet``, or index of the point.
    """

    def __init__(self, rule: str, *, file: str, row: int | None = None) -> None:
        """Put the sentence together."""
        where = file if row is None else f"{file}, row {row}"
        super().__init__(f"{where}: {rule}; the certificate is refused")
        self.file = file
        self.row = row


class PluginError(PhazeOptError):
    """A requested plug-in is unknown or fails to load; the message names it and the reason."""


class PluginFaultError(PluginError):
    """Code of a plug-in raised an error, which is the cause, or gave what it may not.

    Args:
        message: names the plug-in, and where possible file and line.
        group: of the plug-in.
        is_own: whether this package brings the plug-in: then the cause is a bug of the package.
    """

    def __init__(self, message: str, *, group: str, is_own: bool) -> None:
        """Keep whose code it is."""
        super().__init__(message)
        self.group = group
        self.is_own = is_own


class SolverError(PhazeOptError):
    """A solver ended without a usable answer."""


class StorageError(PhazeOptError):
    """A database that a study shares with other machines failed; what is finished is kept."""


class VerificationError(PhazeOptError):
    """An independent check disagrees with a result; always a bug, never bad input."""


class TrackingError(PhazeOptError):
    """A tracker could not record an event."""
