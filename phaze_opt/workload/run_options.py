"""What may be said of a run of training software beside its plan: one table for commands, functions, studies and CSV.

Each option is a column of training rows and, by the same name and words, an option of commands. A word stands for a
table of ``cost/software_options.toml`` (or of a software's own file), which says what it changes and which software can
run so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Compiled(StrEnum):
    """Whether elementwise chains are compiled into kernels."""

    EAGER = "0"
    COMPILED = "1"


class Float8(StrEnum):
    """Recipes of 8-bit matmuls: what has a scale, and when it is found."""

    TENSORWISE = "tensorwise"
    ROWWISE = "rowwise"
    MX = "mx"
    DELAYED = "delayed"


class AsyncTensor(StrEnum):
    """Whether tensor-parallel collectives run in pieces beside their matmuls."""

    IN_TURN = "0"
    ASYNCHRONOUS = "1"


class Prefetch(StrEnum):
    """Which gathers of sharded parameters run ahead of the layers that need them."""

    NONE = "none"
    FORWARD = "forward"


class Selective(StrEnum):
    """What selective recomputation is: attention runs again, or all but the results of some operators."""

    ATTENTION = "attention"
    OPERATORS = "operators"


@dataclass(frozen=True, slots=True)
class RunOption:
    """An option.

    Attributes:
        column: its name in rows, commands (as a flag) and functions.
        words: its closed set.
        tables: name of the table of every word that changes something.
        help: one line on what it does.
    """

    column: str
    words: type[StrEnum]
    tables: Mapping[str, str]
    help: str

    def table(self, word: str) -> str:
        """Name of a word's table; empty of a word that changes nothing."""
        return self.tables.get(word, "")

    @property
    def enumeration(self) -> str:
        """``module:name`` of the closed set."""
        return f"{self.words.__module__}:{self.words.__name__}"


FLOAT8 = "float8"
"""The option that is of machines that exist alone: designed chips compute in 16 bits."""
SELECTIVE = "selective"
"""The option that says what selective recomputation is."""


def _option(column: str, words: type[StrEnum], text: str, **tables: str) -> tuple[str, RunOption]:
    known = MappingProxyType({words[name].value: table for name, table in tables.items()})
    return column, RunOption(column, words, known, text)


RUN_OPTIONS: Mapping[str, RunOption] = MappingProxyType(
    dict(
        (
            _option(
                "compile",
                Compiled,
                "1 for compiled runs (torch.compile), 0 for eager ones.",
                EAGER="eager",
                COMPILED="compile",
            ),
            _option(
                FLOAT8,
                Float8,
                "Recipe of 8-bit matmuls: tensorwise, rowwise, mx or delayed; goes with --dtype fp8.",
                TENSORWISE="float8-tensorwise",
                ROWWISE="float8-rowwise",
                MX="float8-mx",
                DELAYED="float8-delayed",
            ),
            _option(
                "async_tp",
                AsyncTensor,
                "1 for asynchronous tensor parallelism: collectives in pieces beside their matmuls.",
                ASYNCHRONOUS="async-tp",
            ),
            _option(
                "prefetch",
                Prefetch,
                "Gathers of sharded parameters: none runs ahead, or forward's do (FSDP2); assumed, not measured.",
                NONE="no-prefetch",
                FORWARD="forward-prefetch",
            ),
            _option(
                SELECTIVE,
                Selective,
                "What selective recomputation runs again: attention, or all but the operators whose results it keeps. "
                "Assumed but for software's own.",
                ATTENTION="selective-attention",
                OPERATORS="selective-operators",
            ),
        )
    )
)
"""By column."""
