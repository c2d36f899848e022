"""Writing the file of fitted constants: what was fitted is replaced, everything else in it stays as it was."""

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FORMAT, FittedConstants, FittedFile, FittedGroup, FittedValue
from phaze_opt.record.whole_file import replace_file
from phaze_opt.validation.family import FitParameter

SIGNIFICANT_DIGITS = 6
"""Of written values: far beyond what measurements carry, and short of what differs between two processors."""


def merged(
    known: FittedFile,
    groups: Mapping[str, FittedGroup],
    *,
    removed: Collection[str] = (),
    sets: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> FittedFile:
    """A file with some groups replaced, added or dropped; its other groups stay.

    Args:
        known: the file as it is.
        groups: by name; constants of the same name are replaced, others of a group stay as they are.
        removed: names of groups to drop.
        sets: figures by data set, which replace those of the same sets.
    """
    kept = {name: group for name, group in known.groups.items() if name not in removed}
    figures = {name: {key: rounded(value) for key, value in item.items()} for name, item in sets.items()}
    for name, group in groups.items():
        before = kept[name].constants if name in kept else {}
        kept[name] = group.model_copy(update={"constants": {**before, **group.constants}})
    return FittedFile(format=FORMAT, groups=kept, sets=dict(known.sets) | figures)


def write_fitted_file(path: Path, file: FittedFile) -> None:
    """Write a whole file of fitted constants at once, sorted, so that equal constants give equal bytes.

    Raises:
        InputError: a value is not finite or outside its bounds, or the file cannot be written.
    """
    import json

    for name, group in file.groups.items():
        _check(name, group)
    text = json.dumps(file.model_dump(mode="json"), sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False)
    replace_file(path, text + "\n")


def as_written(parameters: Sequence[FitParameter], fitted: FittedConstants) -> FittedConstants:
    """The constants, with the values that these parameters have in them as the file holds them."""
    groups: dict[str, dict[str, float]] = {}
    for parameter in parameters:
        if parameter.name in fitted.groups.get(parameter.group, {}):
            groups.setdefault(parameter.group, {})[parameter.name] = _value(parameter, fitted)
    return fitted.updated(groups)


def _value(parameter: FitParameter, fitted: FittedConstants) -> float:
    value = rounded(fitted.value(parameter.group, parameter.name))
    return min(max(value, parameter.low), parameter.high)


def written_value(parameter: FitParameter, fitted: FittedConstants) -> FittedValue:
    """A fitted constant as the file holds it, with bounds, unit and meaning."""
    return FittedValue(
        value=_value(parameter, fitted),
        low=parameter.low,
        high=parameter.high,
        unit=parameter.unit,
        meaning=parameter.meaning,
    )


def rounded(value: float) -> float:
    """A value as the file holds it."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def _check(name: str, group: FittedGroup) -> None:
    for key, constant in group.constants.items():
        if not math.isfinite(constant.value):
            message = f"is {constant.value}; a fitted constant must be finite"
            raise InputError(message, key=f"{name}.{key}")
        if not constant.low <= constant.value <= constant.high:
            message = f"is {constant.value:g}, outside its bounds {constant.low:g} to {constant.high:g}"
            raise InputError(message, key=f"{name}.{key}")
