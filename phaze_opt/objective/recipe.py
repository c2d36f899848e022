"""What a recipe of N:M sparse training comes to: mean over its phases, weighted by steps, beside dense training.

Every phase is priced by itself, with the plan that is best for it. A mean step takes sum(share x step time), so that
throughput is the batch over that, and energy and utilisations follow. Phases follow one another, so no step is of two.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.sharding import model_flops
from phaze_opt.hardware.sparse_array import DENSE, sparse_array_of
from phaze_opt.objective.evaluation import Evaluation, TimeBreakdown
from phaze_opt.workload.sparsity import Pattern, RecipeKind, SparsePhase, SparseRecipe, SparseWeights
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.workload import Workload

PUBLISHED = (
    "published of accuracy: the decaying masks of arXiv 2209.07617 are as accurate as unstructured sparsity on a "
    "Transformer that translates, for slightly more training FLOPs than other recipes; their successor "
    "(arXiv 2402.04744) reports up to 2 % better vision and 5 % better language models above 80 % sparsity"
)
_BY_TIME = ("tc_utilisation", "vc_utilisation", "average_power_w")
_THREE_PRODUCTS = 3


@dataclass(frozen=True, slots=True)
class PricedPhase:
    """A phase of a recipe and what its steps come to."""

    phase: SparsePhase
    evaluation: Evaluation

    @property
    def words(self) -> str:
        """``dense`` or ``2:4 forward``."""
        return "dense" if self.phase.weights is None else str(self.phase.weights)


@dataclass(frozen=True, slots=True)
class RecipePrice:
    """A recipe, phase by phase, and dense training beside it.

    Attributes:
        recipe: the recipe.
        phases: priced, in order.
        dense: the same job with dense weights on the same chip.
        dense_flops: model FLOPs of a step with dense weights.
        training_flops: of a mean step of the recipe; exact.
        samples_per_usd, dense_samples_per_usd: of the recipe and of dense training; None where costs are not known.
    """

    recipe: SparseRecipe
    phases: tuple[PricedPhase, ...]
    dense: Evaluation
    dense_flops: Fraction
    training_flops: Fraction
    samples_per_usd: float | None = None
    dense_samples_per_usd: float | None = None

    @property
    def mean(self) -> Evaluation:
        """All steps together, or the first phase that is not feasible."""
        return mean_of_phases(self.phases)

    @property
    def speedup(self) -> float:
        """Of training, over dense training; 0 where either does not fit."""
        mean = self.mean
        if not (mean.is_feasible and self.dense.is_feasible):
            return 0.0
        return self.dense.iteration_time_s / mean.iteration_time_s

    def to_json(self) -> dict[str, Any]:
        """All figures; seconds, joules and FLOPs of one step."""
        return {
            "pattern": str(self.recipe.pattern),
            "recipe": self.recipe.kind.value,
            "is_transposable": self.recipe.is_transposable,
            "mean_density": float(self.recipe.mean_density),
            "training_flops": float(self.training_flops),
            "dense_flops": float(self.dense_flops),
            "iteration_time_s": self.mean.iteration_time_s,
            "dense_iteration_time_s": self.dense.iteration_time_s,
            "speedup": self.speedup,
            "energy_per_iteration_j": self.mean.energy_per_iteration_j,
            "dense_energy_per_iteration_j": self.dense.energy_per_iteration_j,
            "samples_per_usd": self.samples_per_usd,
            "dense_samples_per_usd": self.dense_samples_per_usd,
            "phases": [
                {
                    "weights": each.words,
                    "share": float(each.phase.share),
                    "density": float(each.phase.density),
                    "iteration_time_s": each.evaluation.iteration_time_s,
                    "energy_per_iteration_j": each.evaluation.energy_per_iteration_j,
                }
                for each in self.phases
            ],
            "published": PUBLISHED,
        }


def mean_of_phases(phases: Sequence[PricedPhase]) -> Evaluation:
    """The mean step of phases; plan, schedules and notes stay those of the last, whose weights are kept."""
    for each in phases:
        if not each.evaluation.is_feasible:
            return replace(each.evaluation, reason=f"{each.words}: {each.evaluation.reason}")
    last = phases[-1].evaluation
    if len(phases) == 1:
        return last

    def mean(values: Sequence[float]) -> float:
        return sum(float(each.phase.share) * value for each, value in zip(phases, values, strict=True))

    seconds = [each.evaluation.iteration_time_s for each in phases]
    step_s = mean(seconds)
    bounds_s = [1.0 / each.evaluation.throughput_bound_samples_per_s for each in phases]
    by_time: dict[str, Any] = {
        name: mean([getattr(each.evaluation, name) * own for each, own in zip(phases, seconds, strict=True)]) / step_s
        for name in _BY_TIME
    }
    faster = last.iteration_time_s / step_s
    causes = [each.name for each in fields(TimeBreakdown)]
    return replace(
        last,
        iteration_time_s=step_s,
        **by_time,
        throughput_samples_per_s=last.throughput_samples_per_s * faster,
        throughput_tokens_per_s=last.throughput_tokens_per_s * faster,
        throughput_per_tdp=last.throughput_per_tdp * faster,
        mfu=last.mfu * faster,
        throughput_bound_samples_per_s=1.0 / mean(bounds_s),
        energy_per_iteration_j=mean([each.evaluation.energy_per_iteration_j for each in phases]),
        breakdown=TimeBreakdown(
            **{name: mean([getattr(each.evaluation.breakdown, name) for each in phases]) for name in causes}
        ),
    )


def recipe_price(
    recipe: SparseRecipe, phases: Sequence[PricedPhase], *, dense: Evaluation, model: Workload, global_batch: int
) -> RecipePrice:
    """A recipe with the FLOPs of its steps.

    Args:
        recipe: the recipe.
        phases: its phases, priced.
        dense: the same job with dense weights.
        model: what is trained.
        global_batch: samples of a step.
    """
    length = dense.sequence_length
    dense_flops = Fraction(model_flops(model, length)) * global_batch
    thinned = prunable_flops(model, length) * global_batch
    flops = dense_flops - thinned * (1 - recipe.flops_share)
    return RecipePrice(recipe, tuple(phases), dense, dense_flops, flops)


def prunable_flops(model: Workload, sequence_length: int) -> int:
    """FLOPs of one sample in the three products with weights that recipes thin out."""
    weights = SparseWeights(Pattern(1, 2))
    training = TrainingSpec(1, sequence_length, 1, sparsity=weights)
    graph = build_model_graph(model, training, tensor_parallel=1)
    by_kind = [
        sum(each.macs for one in layer.forward.operators for each in one.matmuls if each.pattern is not None)
        for layer in graph.layers
    ]
    return 2 * _THREE_PRODUCTS * sum(by_kind[kind] for kind in graph.chain)


def recipe_sentence(price: RecipePrice) -> str:
    """What the recipe takes of time, energy, FLOPs and dollars beside dense training."""
    mean, dense = price.mean, price.dense
    is_one = price.recipe.has_one_phase
    step = "" if is_one else f": {1e3 * mean.iteration_time_s:.4g} ms a mean step over its phases"
    parts = [f"{float(price.training_flops / price.dense_flops):.3f} of the FLOPs"]
    if price.speedup:
        parts.append(f"{1.0 / price.speedup:.3f} of the time")
    if dense.energy_per_iteration_j:
        parts.append(f"{mean.energy_per_iteration_j / dense.energy_per_iteration_j:.3f} of the energy")
    if price.samples_per_usd and price.dense_samples_per_usd:
        parts.append(f"{price.dense_samples_per_usd / price.samples_per_usd:.3f} of the dollars")
    kind = "" if price.recipe.kind is RecipeKind.SR_STE else f", {price.recipe.kind.value}"
    return (
        f"Trained to {price.recipe.pattern}{kind} (mean density {float(price.recipe.mean_density):.4g}) it takes "
        f"{', '.join(parts)} of dense training on this chip{_unskipped(price)}{step}; "
        "accuracy is not modelled."
    )


def _unskipped(price: RecipePrice) -> str:
    """That nothing is gained where arrays are dense, and how to have others."""
    if sparse_array_of(price.dense.accelerator.sparse_array) != DENSE:
        return ""
    return ", whose arrays skip no zeros (give --arch a sparse_array, such as 2:4, for arrays that do)"


def phase_words(price: RecipePrice) -> str:
    """Which of its phases a plan is of, before the sentence on the plan; empty where all steps are alike."""
    if price.recipe.has_one_phase:
        return ""
    last, mean = price.phases[-1], price.mean
    rate = f"{mean.throughput_samples_per_s:,.4g} samples/s"
    return f"All phases together train {rate}. In the last, {last.words}, {float(last.phase.share):.1%} of the steps: "
