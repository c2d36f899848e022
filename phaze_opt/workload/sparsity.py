"""N:M sparse training: patterns of weights, recipes that reach one, and the FLOPs that a recipe takes.

Of every M weights in a row along a product's inner dimension at most N are not zero. A recipe is a run of phases, each
a share of the steps with one pattern, or dense. Shares and FLOPs are exact fractions. Recipes are those of Kao et al.,
"Training Recipe for N:M Structured Sparsity with Decaying Pruning Mask" (arXiv 2209.07617), and SR-STE of Zhou et al.
(arXiv 2102.04010), which it compares them with.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from phaze_opt.errors import InputError

WEIGHT_BITS = 16
"""Of a working weight."""
MAX_BLOCK = 1024
"""Largest M accepted: a block of weights that one multiplier chooses from."""
GEOMETRIC_FRAMES = 4
"""Patterns 8N:8M, 4N:4M, 2N:2M and N:M of geometric structure decay."""
_PATTERN = re.compile(r"(?P<kept>[0-9]{1,5}):(?P<of>[0-9]{1,5})")
_SHARE = re.compile(r"(0|1|0?\.[0-9]{1,9}|[0-9]{1,9}/[1-9][0-9]{0,8})", re.ASCII)
_SWITCH = {"yes": True, "no": False}
SOURCE = "--sparsity"


@dataclass(frozen=True, slots=True, order=True)
class Pattern:
    """``kept`` of every ``of`` weights are not zero."""

    kept: int
    of: int

    def __post_init__(self) -> None:
        """Refuse patterns that keep nothing, or more than there is."""
        if not 1 <= self.kept < self.of <= MAX_BLOCK:
            message = (
                f"'{self.kept}:{self.of}' cannot be: N:M keeps N of every M weights, so N is from 1 to M - 1 and M at "
                f"most {MAX_BLOCK}; 2:4 is the usual one"
            )
            raise InputError(message, source=SOURCE)

    @property
    def density(self) -> Fraction:
        """Share of the weights that is not zero."""
        return Fraction(self.kept, self.of)

    @property
    def stored_share(self) -> Fraction:
        """Bytes of 16-bit weights as stored, with the place of each within its block, over those of dense weights."""
        place_bits = (self.of - 1).bit_length()
        return self.density * Fraction(WEIGHT_BITS + place_bits, WEIGHT_BITS)

    def __str__(self) -> str:
        """``2:4``."""
        return f"{self.kept}:{self.of}"


@dataclass(frozen=True, slots=True, order=True)
class SparseWeights:
    """One pattern of the weights of a model's units, and which products it thins out.

    The forward product always is sparse. The input gradient multiplies by the same weights transposed, so that it is
    sparse only where masks are transposable: N of M along both edges (Hubara et al., arXiv 2102.08124). The weight
    gradient multiplies activations by gradients and stays dense: pruned weights are updated too (straight through).

    Attributes:
        pattern: of the weights.
        is_transposable: whether the input gradient is sparse too.
    """

    pattern: Pattern
    is_transposable: bool = False

    @property
    def flops_share(self) -> Fraction:
        """FLOPs of the three products over those of dense weights."""
        return (2 + self.pattern.density + (self.pattern.density - 1) * self.is_transposable) / Fraction(3)

    @property
    def copied_share(self) -> Fraction:
        """Bytes of all compressed copies over those of the dense weights.

        A pass reads its copy along its own inner dimension, so that a transposable mask takes two: PyTorch's
        `SparseSemiStructuredTensor` holds ``packed`` and ``packed_t`` with their places for training.
        """
        return (1 + self.is_transposable) * self.pattern.stored_share

    @property
    def choosing_operations(self) -> Fraction:
        """Lane operations a weight in every step: a bitonic network sorts each block, then mask and decay.

        A network of 2^L places has L (L + 1) / 4 comparators a place; masking and decaying a weight are 3 operations
        (SR-STE's 2e-4 (1 - mask) w, or the factor of mask decay).
        """
        levels = (self.pattern.of - 1).bit_length()
        return Fraction(levels * (levels + 1), 4) + 3

    @property
    def option(self) -> str:
        """What `parse_recipe` reads as these weights in every step."""
        return f"{self.pattern}{',transposable=yes' if self.is_transposable else ''}"

    def __str__(self) -> str:
        """``2:4 in both passes`` or ``2:4 forward``."""
        return f"{self.pattern} {'in both passes' if self.is_transposable else 'forward'}"


class RecipeKind(StrEnum):
    """How training reaches its pattern.

    SR_STE: from the first step after the dense ones, straight-through gradients and decay of pruned weights.
    MASK_DECAY: pruned weights are scaled by a factor that falls to 0; all of them are multiplied until it is 0.
    STEPWISE: structure decay from (M-1):M over M/2:M down to N:M, frames of equal length.
    GEOMETRIC: structure decay 8N:8M, 4N:4M, 2N:2M, N:M, frames of equal length.
    """

    SR_STE = "sr-ste"
    MASK_DECAY = "mask-decay"
    STEPWISE = "stepwise"
    GEOMETRIC = "geometric"


@dataclass(frozen=True, slots=True)
class SparsePhase:
    """A share of the steps of training, in order; ``weights`` is None where they are dense."""

    share: Fraction
    weights: SparseWeights | None

    @property
    def density(self) -> Fraction:
        """Share of the weights that is multiplied in a forward product."""
        return Fraction(1) if self.weights is None else self.weights.pattern.density

    @property
    def flops_share(self) -> Fraction:
        """FLOPs of a step's three products over those of a dense step."""
        return Fraction(1) if self.weights is None else self.weights.flops_share


@dataclass(frozen=True, slots=True)
class SparseRecipe:
    """How a model is trained to N:M sparse weights.

    Attributes:
        pattern: that training ends with.
        kind: how it is reached.
        dense: share of the steps before, with dense weights.
        fine_tune: share of the steps after, with the pattern.
        is_transposable: whether the input gradient is sparse too.
    """

    pattern: Pattern
    kind: RecipeKind = RecipeKind.SR_STE
    dense: Fraction = Fraction(0)
    fine_tune: Fraction = Fraction(0)
    is_transposable: bool = False

    def __post_init__(self) -> None:
        """Refuse shares that leave nothing, and stepwise decay to where halving does not lead."""
        if not (self.dense >= 0 and self.fine_tune >= 0 and self.dense + self.fine_tune < 1):
            message = f"dense = {self.dense} and fine_tune = {self.fine_tune} must be at least 0 and sum to below 1"
            raise InputError(message, source=SOURCE)
        ratio = 1 / self.pattern.density
        if self.kind is RecipeKind.STEPWISE and (ratio.denominator != 1 or ratio.numerator & (ratio.numerator - 1)):
            message = (
                f"stepwise decay halves what it keeps, which never is {self.pattern}; give N:M with M/N 2, 4, 8 .."
            )
            raise InputError(message, source=SOURCE)

    @property
    def phases(self) -> tuple[SparsePhase, ...]:
        """Dense steps, the recipe's own, fine-tuning; neighbours of one pattern are one phase."""
        frames = self._frames()
        between = 1 - self.dense - self.fine_tune
        parts = [(self.dense, None), *((between / len(frames), each) for each in frames)]
        parts.append((self.fine_tune, self.pattern))
        found: list[SparsePhase] = []
        for share, pattern in parts:
            weights = None if pattern is None else SparseWeights(pattern, self.is_transposable)
            if found and found[-1].weights == weights:
                found[-1] = SparsePhase(found[-1].share + share, weights)
            elif share:
                found.append(SparsePhase(share, weights))
        return tuple(found)

    def _frames(self) -> tuple[Pattern | None, ...]:
        """Patterns between the dense steps and fine-tuning, for equally many steps each."""
        kept, of = self.pattern.kept, self.pattern.of
        if self.kind is RecipeKind.MASK_DECAY:
            return (None,)
        if self.kind is RecipeKind.GEOMETRIC:
            return tuple(Pattern(kept << step, of << step) for step in reversed(range(GEOMETRIC_FRAMES)))
        if self.kind is RecipeKind.STEPWISE:
            halves = (of // kept).bit_length() - 1
            return (Pattern(of - 1, of), *(Pattern(kept << step, of) for step in reversed(range(halves))))
        return (self.pattern,)

    @property
    def mean_density(self) -> Fraction:
        """Of the weights that forward products multiply, over all steps."""
        return sum((phase.share * phase.density for phase in self.phases), Fraction(0))

    @property
    def flops_share(self) -> Fraction:
        """FLOPs of all steps' products with sparse weights over those of dense training."""
        return sum((phase.share * phase.flops_share for phase in self.phases), Fraction(0))

    @property
    def has_one_phase(self) -> bool:
        """Whether all steps are alike."""
        return len(self.phases) == 1

    @property
    def only_weights(self) -> SparseWeights | None:
        """Its one pattern where it has no other phase; None where phases differ."""
        phases = self.phases
        return phases[0].weights if len(phases) == 1 else None

    def training_flops(self, dense_flops: int, prunable_flops: int) -> Fraction:
        """FLOPs of a mean step.

        Args:
            dense_flops: of a step with dense weights.
            prunable_flops: those of them in products with the weights that the recipe thins out.
        """
        return dense_flops - prunable_flops * (1 - self.flops_share)


def only_weights(text: str) -> SparseWeights | None:
    """The weights of a recipe of one phase; None where nothing is said.

    Raises:
        InputError: it is no recipe, its phases differ, or none is sparse.
    """
    if not text:
        return None
    recipe = parse_recipe(text)
    found, end = recipe.only_weights, SparseWeights(recipe.pattern, recipe.is_transposable).option
    if found is not None:
        return found
    if recipe.has_one_phase:
        message = (
            f"'{text}' multiplies all weights in every step, as mask decay does until fine_tune begins; give {end}, "
            "or leave it out"
        )
    else:
        message = (
            f"'{text}' has {len(recipe.phases)} phases of different weights, and searches, certificates and studies "
            f"are of one; give {end}, which it ends with, or price the recipe on one chip with `phaze-opt evaluate`"
        )
    raise InputError(message, source=SOURCE)


_KEYS = ("recipe", "dense", "fine_tune", "transposable")


def parse_recipe(text: str) -> SparseRecipe:
    """A recipe from ``N:M`` and ``key=value`` pairs: ``1:16,recipe=stepwise,dense=0.1,fine_tune=0.2``.

    Raises:
        InputError: it does not read so.
    """
    first, *parts = (part.strip() for part in text.split(","))
    found: dict[str, str] = {}
    for part in parts:
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in _KEYS or key in found or not value:
            message = f"'{part}' must be one of {', '.join(_KEYS)} with its value, each once: N:M,recipe=stepwise"
            raise InputError(message, source=SOURCE)
        found[key] = value
    return SparseRecipe(
        pattern=parse_pattern(first),
        kind=_kind(found.get("recipe", RecipeKind.SR_STE)),
        dense=_share("dense", found.get("dense", "0")),
        fine_tune=_share("fine_tune", found.get("fine_tune", "0")),
        is_transposable=_switch(found.get("transposable", "no")),
    )


def parse_pattern(text: str) -> Pattern:
    """``2:4``.

    Raises:
        InputError: it is no pattern.
    """
    match = _PATTERN.fullmatch(text)
    if match is None:
        message = f"'{text}' must read N:M, which keeps N of every M weights, such as 2:4"
        raise InputError(message, source=SOURCE)
    return Pattern(int(match["kept"]), int(match["of"]))


def _kind(text: str) -> RecipeKind:
    if text not in list(RecipeKind):
        message = f"recipe '{text}' is unknown; known are {', '.join(RecipeKind)}"
        raise InputError(message, source=SOURCE)
    return RecipeKind(text)


def _share(key: str, text: str) -> Fraction:
    if _SHARE.fullmatch(text) is None:
        message = f"{key} = '{text}' must be a share of the steps from 0 to below 1, such as 0.1 or 1/3"
        raise InputError(message, source=SOURCE)
    return Fraction(text)


def _switch(text: str) -> bool:
    if text not in _SWITCH:
        message = f"transposable = '{text}' must be yes or no"
        raise InputError(message, source=SOURCE)
    return _SWITCH[text]
