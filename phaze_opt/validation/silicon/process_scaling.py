"""Area and energy between processes: two published ratios, none of them fitted."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from phaze_opt.errors import InputError
from phaze_opt.record.suggestions import suggest

BASE_PROCESS = "22 nm"
"""Process of the package's area and energy tables."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process: its name in nanometres, and the area of its high-density six-transistor SRAM cell."""

    nanometres: float
    bitcell_um2: float


_PROCESSES: Mapping[str, Process] = MappingProxyType(
    {
        "65 nm": Process(65, 0.525),
        "28 nm": Process(28, 0.127),
        "22 nm": Process(22, 0.092),
        "16 nm": Process(16, 0.070),
        "TSMC 16FF": Process(16, 0.070),
        "TSMC 16FF+": Process(16, 0.070),
        "TSMC 12FFN": Process(16, 0.070),
        "Samsung 8N": Process(8, 0.040),
        "7 nm": Process(7, 0.027),
        "TSMC N7": Process(7, 0.027),
        "TSMC N6": Process(7, 0.027),
        "TSMC N5 and N6": Process(5, 0.021),
        "TSMC 4N": Process(5, 0.021),
        "TSMC 4NP": Process(5, 0.021),
        "TSMC N5": Process(5, 0.021),
        "TSMC N3P and N6": Process(3, 0.021),
    }
)
"""Cells as published at IEDM and ISSCC for TSMC's 65, 28, 16, 7 and 5 nm, Intel's 22 nm and Samsung's 8 nm (recalled).
12FFN is a 16 nm, N6 a 7 nm and 4N a 5 nm process; N3E's cell is as large as N5's. Contacted gate pitch times metal
pitch falls alike: 7,200 nm2 at 22 nm, 2,280 at 7 nm, a factor of 3.2 against 3.4 of the cells."""

ENERGY_RATIO_45_TO_7 = 2.6
"""Energy of an operation at 45 nm over that at 7 nm: geometric mean of adders, multipliers and SRAM reads, Jouppi et
al., Ten lessons from three generations (ISCA 2021), table 2 (recalled)."""
_ENERGY_EXPONENT = math.log(ENERGY_RATIO_45_TO_7) / math.log(45 / 7)


def area_factor(process: str) -> float:
    """Area in this process over that at 22 nm: the ratio of SRAM cells, for logic too.

    Raises:
        InputError: a process that is not listed, with a near miss.
    """
    return _find(process).bitcell_um2 / _find(BASE_PROCESS).bitcell_um2


def energy_factor(process: str) -> float:
    """Energy of an on-chip operation in this process over that at 22 nm: (nanometres / 22)**0.51.

    The exponent is that of a power law through the published ratio of 45 to 7 nm.

    Raises:
        InputError: a process that is not listed, with a near miss.
    """
    ratio: float = (_find(process).nanometres / _find(BASE_PROCESS).nanometres) ** _ENERGY_EXPONENT
    return ratio


def is_known_process(process: str) -> bool:
    """Whether factors for this process are known."""
    return process in _PROCESSES


def _find(process: str) -> Process:
    if process not in _PROCESSES:
        message = f"no scaling to process '{process}' is known; {suggest(process, _PROCESSES)}"
        raise InputError(message, key="process")
    return _PROCESSES[process]
