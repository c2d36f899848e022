"""Training steps of models with experts: what launches and exchanges of experts take, fitted to published runs.

All else of a step is as of models without experts: no figure of those depends on these rows. Tried and left out,
as the rows ask for none of it: another rate for the products of several experts than for others (it came out at the
bound, 1.2), and more memory traffic of permutations than one copy each way (it came out at 1).
"""

from collections.abc import Sequence
from types import MappingProxyType

from phaze_opt.cost.stacks import expert_group
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.spreads import UNSEEN
from phaze_opt.validation.family import Family, FitParameter
from phaze_opt.validation.fit import fit_towards_starts
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.training.compiled import StepRows, compile_training
from phaze_opt.validation.training.entries import MOE, read_entries
from phaze_opt.validation.training.parameters import CORE
from phaze_opt.validation.training.row import expert_capacity

_LAUNCH = "host time to launch a product of one expert or a permutation"
_SHARE = "share of the links' and adapters' bandwidth that tokens on their way to experts and back reach"
EXPERT_PARAMETERS = (
    FitParameter(expert_group(CORE), "host_s_per_expert", "s", 1e-5, 1.5e-4, 3e-5, _LAUNCH, is_log=True),
    FitParameter(expert_group(CORE), "expert_efficiency", "1", 0.5, 1.0, 0.8, _SHARE),
)
"""Starts: what PyTorch takes to launch (`estimate.machine.HOST_CALL_S`), and what DeepEP reaches of an adapter between
nodes (43 to 58 of 50 GB/s by its tables, copies within a node left out)."""


def _compile(rows: Sequence[Row]) -> StepRows:
    return compile_training(rows, read_entries)


def _fit(rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
    return fit_towards_starts(_compile(rows), EXPERT_PARAMETERS, start)


def _regime(row: Row) -> str:
    """Whether tokens are dropped beyond a capacity, or how many experts a device has."""
    if expert_capacity(row):
        return "fixed capacity"
    return f"{row.integer('experts', 1) // row.integer('ep', 1)} experts a device"


EXPERTS = Family(
    name="experts",
    datasets=(MOE,),
    parameters=lambda rows: EXPERT_PARAMETERS,
    compile=_compile,
    fit=_fit,
    unseen=UNSEEN,
    regime=_regime,
    cell=lambda row: row.joined("hardware", "model", "n_devices", "micro_batch", "pp", "capacity"),
    splits=MappingProxyType(
        {"machine": lambda row: row.text("hardware"), "model": lambda row: row.joined("layers", "hidden", "experts")}
    ),
)
"""Megatron-Core with experts on H100, B200, GB200 and GB300; tested on machines and models kept out."""
