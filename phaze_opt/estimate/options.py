"""The disputable choices of the analytic estimator, as named options (their sources are in hardware/constants.toml)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import Constants

_ChoiceT = TypeVar("_ChoiceT", bound=StrEnum)


class GlbLimit(StrEnum):
    """How fast the global buffer is.

    ``fixed``: the accelerator's own bandwidth; ``proportional``: that, times its size over
    ``glb.proportional_reference_bytes``; ``none``: never binds.
    """

    FIXED = "fixed"
    PROPORTIONAL = "proportional"
    NONE = "none"


class FillAndDrain(StrEnum):
    """How often an array pays 2d + w - 2 cycles: at every fold (SCALE-Sim), once an operator, or never."""

    PER_FOLD = "per_fold"
    PER_OPERATOR = "per_operator"
    NONE = "none"


class Multicast(StrEnum):
    """Whether arrays that need the same operand each read it from the GLB (``none``) or share one read (``ideal``)."""

    NONE = "none"
    IDEAL = "ideal"


class Residency(StrEnum):
    """Whether the buffer holds tensors between operators: none, or those that `graph.residency` plans."""

    NONE = "none"
    PLANNED = "planned"


class GroupedProducts(StrEnum):
    """How the groups of a convolution run, whose products are too small for an array each.

    ``packed``: block-diagonally, as many side by side as an array's edges take; ``lanes``: on the vector cores, where a
    multiply-accumulate takes as long as an addition; ``faster``: the faster of both; ``one_by_one``: as any matmuls.
    """

    FASTER = "faster"
    PACKED = "packed"
    LANES = "lanes"
    ONE_BY_ONE = "one_by_one"


@dataclass(frozen=True, slots=True)
class EstimatorOptions:
    """Choices in force; the defaults are those of semantics 3."""

    glb_limit: GlbLimit = GlbLimit.FIXED
    fill_and_drain: FillAndDrain = FillAndDrain.PER_FOLD
    multicast: Multicast = Multicast.NONE
    residency: Residency = Residency.NONE
    grouped: GroupedProducts = GroupedProducts.FASTER

    @classmethod
    def from_constants(cls, constants: Constants) -> "EstimatorOptions":
        """The choices that ``[estimator_options]`` of the constants names.

        Raises:
            InputError: a choice this estimator does not know.
        """
        return cls(
            glb_limit=_choice(GlbLimit, constants, name="glb_limit"),
            fill_and_drain=_choice(FillAndDrain, constants, name="fill_and_drain"),
            multicast=_choice(Multicast, constants, name="multicast"),
            residency=_choice(Residency, constants, name="residency"),
            grouped=_choice(GroupedProducts, constants, name="grouped"),
        )


def _choice(choices: type[_ChoiceT], constants: Constants, *, name: str) -> _ChoiceT:
    """The constants' choice for one option as a member of its enum."""
    text = constants.option(name)
    try:
        return choices(text)
    except ValueError as error:
        message = f"estimator option = '{text}' must be one of {', '.join(choices)}"
        raise InputError(message, key=f"estimator_options.{name}") from error
