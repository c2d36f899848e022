"""What launchers of training software refuse of a plan when they start: rules that each software's file states."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phaze_opt.workload.model import transformer_of
from phaze_opt.workload.plan import tensor_groups
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.workload import Workload

DEGREES = ("tensor", "pipeline", "data", "context", "expert", "interleave", "micro_batch", "zero")
"""Fields of plans that rules speak of."""


@dataclass(frozen=True, slots=True)
class LaunchRule:
    """A size is a multiple of a product, or at least that.

    Attributes:
        size: what the rule is about, one of `launch_sizes`.
        of: whose product, and that of ``times``, it is a multiple of.
        source: where the software says so, and how.
        times: a factor.
        is_least: the size is at least the product, not a multiple.
        when: where these are above 1 alone does the rule hold.
    """

    size: str
    of: tuple[str, ...]
    source: str
    times: int = 1
    is_least: bool = False
    when: tuple[str, ...] = ()

    def is_broken(self, sizes: Mapping[str, Any]) -> Any:
        """Whether a plan, or each of many, breaks it, by `launch_sizes`."""
        size, product = sizes[self.size], self._product(sizes)
        is_broken = size < product if self.is_least else size % product > 0
        return is_broken * math.prod(sizes[name] > 1 for name in self.when) > 0

    def says(self, software: str, sizes: Mapping[str, int]) -> str:
        """The rule that one plan breaks, and the nearest values that keep it."""
        size, product = sizes[self.size], self._product(sizes)
        names = [f"{name.replace('_', ' ')} {sizes[name]}" for name in self.of]
        factors = " x ".join([str(self.times)] * (self.times > 1) + names)
        wanted = "of at least" if self.is_least else "in multiples of"
        below = size // product * product
        fits = [product] if self.is_least else [each for each in (below, below + product) if each]
        given = " or ".join(map(str, fits))
        if self.size == "key_value_heads":
            given = f"{self.of[-1]} {max(each for each in range(1, size + 1) if size % (self.times * each) == 0)}"
        return (
            f"{software} takes {self.size.replace('_', ' ')} {wanted} {product} ({factors}), not {size}; give {given} "
            f"({self.source})"
        )

    def _product(self, sizes: Mapping[str, Any]) -> Any:
        return self.times * math.prod(sizes[name] for name in self.of)


def refusals(software: str, rules: Sequence[LaunchRule], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """What a launcher says of one plan that it refuses; nothing of others."""
    return tuple(rule.says(software, sizes) for rule in rules if rule.is_broken(sizes))


def launch_sizes(model: Workload, training: TrainingSpec, plan: Any) -> dict[str, Any]:
    """What rules speak of, by name: numbers of a plan, arrays of the columns of many; 0 heads of other models."""
    transformer = transformer_of(model)
    blocks = () if transformer is None else transformer.kinds
    return {name: getattr(plan, name) for name in DEGREES} | {
        "sequence_length": training.sequence_length,
        "key_value_heads": math.gcd(*(attention.num_kv_heads for block in blocks for attention in block.attentions)),
        "experts": model.num_experts,
        "micro_batches": training.global_batch // (plan.data * plan.micro_batch),
        "sequence_shards": 1 + (plan.tensor - 1) * plan.is_sequence_parallel,
        "expert_folds": tensor_groups(plan),
    }
