"""A small stochastic policy over a sequence of categorical actions, trained by REINFORCE (Williams, 1992)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(slots=True)
class SequencePolicy:
    """Chooses one action at each step: logits = bias + a row that depends on the action before.

    The row stands in for the memory of a recurrent policy: one step of context, learned like the bias. All logits
    begin at zero, so the policy begins uniform.

    Attributes:
        counts: actions at each step.
        bias: ``bias[step]`` of shape (counts[step],).
        context: ``context[step]`` of shape (counts[step - 1], counts[step]); the first step has one row of its own.
    """

    counts: tuple[int, ...]
    bias: list[Floats] = field(default_factory=list)
    context: list[Floats] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin uniform."""
        self.bias = [np.zeros(count) for count in self.counts]
        self.context = [
            np.zeros((before, count)) for before, count in zip((1, *self.counts), self.counts, strict=False)
        ]

    def sample(self, rng: np.random.Generator) -> tuple[int, ...]:
        """A sequence of actions."""
        actions: list[int] = []
        for step in range(len(self.counts)):
            shares = self.probabilities(step, actions)
            actions.append(min(int(np.searchsorted(np.cumsum(shares), rng.random())), len(shares) - 1))
        return tuple(actions)

    def probabilities(self, step: int, actions: Sequence[int]) -> Floats:
        """Chance of each action at a step after the actions before it, shape (counts[step],)."""
        logits = self.bias[step] + self.context[step][self._row(step, actions)]
        raised = np.exp(logits - logits.max())
        shares: Floats = raised / raised.sum()
        return shares

    def reinforce(self, actions: Sequence[int], *, advantage: float, entropy_weight: float, rate: float) -> None:
        """One step of gradient ascent on advantage x log chance(actions) + entropy_weight x entropy at each step.

        d log p(a) / d logits = onehot(a) - p;  d H / d logits = -p (log p + H).
        """
        for step, action in enumerate(actions):
            shares = self.probabilities(step, actions)
            logs = np.log(np.maximum(shares, 1e-300))
            entropy = -float((shares * logs).sum())
            gradient = -advantage * shares - entropy_weight * shares * (logs + entropy)
            gradient[action] += advantage
            self.bias[step] += rate * gradient
            self.context[step][self._row(step, actions)] += rate * gradient

    @staticmethod
    def _row(step: int, actions: Sequence[int]) -> int:
        return actions[step - 1] if step else 0
