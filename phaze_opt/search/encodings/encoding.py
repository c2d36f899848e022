"""`Encoding`: between design points and what a sampler proposes; `build_encoding` makes one by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from phaze_opt.hardware.template import DesignPoint
from phaze_opt.search.options import option
from phaze_opt.space.codec import Codec, Parameter
from phaze_opt.space.search_space import SearchSpace

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

CODEC, EXPONENTS, LIFTED = "codec", "exponents", "lifted"
ENCODINGS = (CODEC, EXPONENTS, LIFTED)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A proposal that means no kept point.

    Attributes:
        violation: by how much it breaks the area band, > 0; a share of the bound that it breaks.
    """

    violation: float


class Encoding(Protocol):
    """Fixed distributions, and what their values mean; every kept point can be proposed."""

    @property
    def space(self) -> SearchSpace:
        """The points."""
        ...

    def distributions(self) -> dict[str, BaseDistribution]:
        """Optuna's distribution of every parameter."""
        ...

    def decode(self, params: Mapping[str, Any], /) -> DesignPoint | Rejected:
        """What a proposal means."""
        ...

    def encode(self, point: DesignPoint, /) -> dict[str, int]:
        """A proposal that means a kept point."""
        ...


def distributions_of(parameters: Iterable[Parameter]) -> dict[str, BaseDistribution]:
    """One integer per parameter of several values."""
    from optuna.distributions import IntDistribution

    return {
        known.name: IntDistribution(known.low, known.low + known.count - 1) for known in parameters if known.count > 1
    }


def named(parameters: Sequence[Parameter], positions: Sequence[int]) -> dict[str, int]:
    """The proposal of some positions on the parameters' axes."""
    pairs = zip(parameters, positions, strict=True)
    return {known.name: known.low + position for known, position in pairs if known.count > 1}


def encoding_option() -> Any:
    """The option ``encoding`` of a strategy that proposes parameters."""
    return option(
        CODEC,
        "how points are encoded: codec proposes kept points only, exponents rejects the others, lifted moves them",
        choices=ENCODINGS,
    )


def build_encoding(name: str, space: SearchSpace) -> Encoding:
    """The encoding of a name among `ENCODINGS`; `resolve_options` has refused any other."""
    if name == EXPONENTS:
        from phaze_opt.search.encodings.exponents import ExponentEncoding

        return ExponentEncoding(space)
    if name == LIFTED:
        from phaze_opt.search.encodings.lifts import LiftedEncoding

        return LiftedEncoding(space)
    return Codec(space)
