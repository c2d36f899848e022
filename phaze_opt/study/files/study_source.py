"""A study file on its way to a plan: its values, its text, and where in it a fault is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from phaze_opt.errors import InputError
from phaze_opt.record.spelling import suggest
from phaze_opt.record.toml_file import TomlDocument
from phaze_opt.study.files.study_models import StudyDocument

_EnumT = TypeVar("_EnumT", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class StudySource:
    """A study file that is being read.

    Attributes:
        toml: its values and text.
        folder: that files named in it are relative to.
    """

    toml: TomlDocument
    folder: Path

    def validate(self) -> StudyDocument:
        """Check keys and types.

        Raises:
            InputError: the first fault.
        """
        return self.toml.validate(StudyDocument)

    def fault(self, rule: str, *path: str | int) -> InputError:
        """The error of a key."""
        return self.toml.fault(rule, *path)

    def word(self, enum: type[_EnumT], text: str, *path: str | int) -> _EnumT:
        """A word of a closed set.

        Raises:
            InputError: it is none of them.
        """
        try:
            return enum(text)
        except ValueError:
            message = f"'{text}' is unknown; {suggest(text, [member.value for member in enum])}"
            raise self.fault(message, *path) from None
