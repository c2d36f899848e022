"""Constants of modern kernels that some rows can tell, each by at least `LEAST_ROWS` of them."""

from collections import Counter
from collections.abc import Iterable, Iterator

from phaze_opt.objective.caveats import HEAD_STEP
from phaze_opt.validation.family import FitParameter
from phaze_opt_lab.estimate.fused_attention import GOOD_HEAD
from phaze_opt_lab.estimate.kernel_constants import (
    CONSTANTS,
    FLOOR,
    HOST_CALLS,
    KernelConstant,
    KernelKind,
    Owner,
    kernel_group,
)
from phaze_opt_lab.modern.cases import KernelCase
from phaze_opt_lab.modern.recipes import PLAIN
from phaze_opt_lab.number_format import Width, facts_of, format_peak, has_units

LEAST_ROWS = 8
"""Fewer rows fix no constant."""
HIDDEN_S = 3e-7
"""Time at the peak below which nothing of an eager kernel shows behind a launch of some 50 us."""
_HEAD_SIZE, _WINDOW, _QUANTISE, _ROWS, _PAIRS, _OWN_PAIRS = 5, 8, 4, 1, 1, 3
"""Places of a head's size and the window, of bytes to quantise, of rows that take turns, and of pairs of a token and an
expert, all and a rank's own, among a case's sizes."""


def kernel_parameters(cases: Iterable[KernelCase]) -> tuple[FitParameter, ...]:
    """Constants of the machines and recipes that these cases show often enough."""
    by_group: dict[tuple[KernelKind, Owner, str], list[KernelCase]] = {}
    for case in cases:
        by_group.setdefault((case.kernel, Owner.MACHINE, case.device.name), []).append(case)
        by_group.setdefault((case.kernel, Owner.RECIPE, case.recipes[0]), []).append(case)
    by_group = {key: own for key, own in by_group.items() if len(own) >= LEAST_ROWS}
    named = {kernel for kernel, owner, name in by_group if owner is Owner.RECIPE and not name.startswith(PLAIN)}
    found: list[FitParameter] = []
    for (kernel, owner, name), own in sorted(by_group.items()):
        # Beside libraries with names, one without is none: its rows are priced as another's.
        if owner is Owner.RECIPE and name.startswith(PLAIN) and kernel in named:
            continue
        group = kernel_group(kernel, owner, name)
        is_seen = owner is Owner.MACHINE or _is_seen(own)
        for constant in CONSTANTS[kernel]:
            is_shown = (is_seen or constant.name == HOST_CALLS) and _num_showing(constant, own) >= LEAST_ROWS
            if constant.owner is owner and is_shown:
                found += (_parameter(group, constant, width) for width in _widths(constant, own))
    return tuple(found)


def _is_seen(cases: list[KernelCase]) -> bool:
    """Whether enough rows show more of their kernels than the host's launch."""
    return sum(not case.recipe.is_eager or _ideal_s(case) > HIDDEN_S for case in cases) >= LEAST_ROWS


def _ideal_s(case: KernelCase) -> float:
    """Time of an eager matmul at the peak, s."""
    batch, m, n, k, _ = case.sizes
    return 2.0 * batch * m * n * k / format_peak(case.device, case.number_format)


def _num_showing(constant: KernelConstant, cases: list[KernelCase]) -> int:
    """How many rows show a constant at all."""
    shows = {
        "host_s": lambda case: case.recipe.is_eager,
        HOST_CALLS: lambda case: case.recipe.is_eager,
        "quantise_s": lambda case: case.sizes[_QUANTISE] > 0,
        "quantise_share": lambda case: case.sizes[_QUANTISE] > 0,
        "quantise_element_s": lambda case: case.sizes[_QUANTISE] > 0,
        "quantise_row_s": lambda case: case.sizes[_QUANTISE] > 0,
        "wide_head": lambda case: case.sizes[_HEAD_SIZE] > GOOD_HEAD,
        "odd_head": lambda case: case.sizes[_HEAD_SIZE] % HEAD_STEP > 0,
        "row_s": lambda case: case.sizes[_ROWS] > 0,
        "strangers": lambda case: case.sizes[_PAIRS] > case.sizes[_OWN_PAIRS],
        FLOOR: lambda case: case.sizes[_ROWS] == 0,
        "window_keys": lambda case: case.sizes[_WINDOW] > 0,
    }
    show = shows.get(constant.name)
    return len(cases) if show is None else sum(map(show, cases))


def _widths(constant: KernelConstant, cases: list[KernelCase]) -> Iterator[str]:
    """Names' endings: none of 16 bits or of all, else of a width that enough rows multiply on units of their own."""
    if not constant.widths:
        yield ""
        return
    counts = Counter(facts_of(case.number_format).width for case in cases if has_units(case.device, case.number_format))
    yield ""
    yield from (f".{width}" for width in (Width.EIGHT, Width.FOUR) if counts[width] >= LEAST_ROWS)


def _parameter(group: str, constant: KernelConstant, ending: str) -> FitParameter:
    bits = f", operands of {ending[1:]} bits" if ending else ""
    return FitParameter(
        group,
        f"{constant.name}{ending}",
        constant.unit,
        constant.low,
        constant.high,
        constant.start,
        f"{constant.meaning}{bits}",
        is_log=True,
    )
