"""Strategy ``confuciux``: reinforcement learning, then genetic fine tuning (ConfuciuX, Kao et al., MICRO 2020).

Two stages, as there. First a policy proposes whole designs, one categorical action a parameter, and learns from their
worth by REINFORCE. Then a local genetic search refines the best designs found: crossover among them and small steps.

What is left out or different, plainly:
- The policy. ConfuciuX has an LSTM over the layers of a network and chooses processing elements and buffer for each
  layer in turn. One chip serves all layers here and there are about seven parameters, so the policy is a table of
  logits a parameter with one row of context, the action before; no recurrent network, no per-layer assignment, no
  dataflow choice (the estimator takes the best one of every operator).
- The state. It sees the actions so far and nothing of layer shapes or of the budget left.
- The reward. There the improvement over the worst value seen, with a penalty where a budget breaks, after every
  action; here one a design: the share of earlier outcomes that it beats. Scale-free, so an outlier moves nothing, and a
  point that is infeasible or dropped by a pruner has its place in the order (`genome.Merit`) like any other.
- The budget. The paper spends thousands of epochs; here ``policy_share`` of the evaluations granted, tens. The policy
  then has learned which values of single parameters are bad, hardly more, and the second stage does most of the work.
- The second stage keeps its parents among everything evaluated so far, not in a population apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.search.options import option, resolve_options
from phaze_opt.search.strategies.genome import Archive, Genome, build_genome, propose_new
from phaze_opt.search.strategy import ONE_GOAL, Outcome, StrategyContext, StrategyRun


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


@dataclass(frozen=True, slots=True)
class ConfuciuXOptions:
    """Of `ConfuciuXStrategy`."""

    policy_share: float = option(0.3, "share of the evaluations that the policy proposes", low=0.0, high=1.0)
    learning_rate: float = option(0.5, "step of the policy's gradient ascent", low=0.0, high=100.0)
    entropy_weight: float = option(0.02, "how much the policy is kept from settling", low=0.0, high=10.0)
    baseline_decay: float = option(
        0.8, "weight of the past in the mean reward that a reward is compared with", low=0.0, high=1.0
    )
    parents: int = option(5, "best designs that the second stage breeds from", low=1, high=100_000)
    crossover_rate: float = option(0.3, "share of children with two parents in the second stage", low=0.0, high=1.0)
    mutation_rate: float = option(0.2, "chance of each gene to move; one moves at least", low=0.0, high=1.0)
    largest_step: int = option(1, "values that a gene moves at most", low=1, high=100)


ATTEMPTS = 24
"""Proposals made, by the stage and then at random, before a repeated one is accepted."""


class ConfuciuXStrategy:
    """Learns a policy on the first evaluations and refines the best designs with the rest."""

    name = "confuciux"
    capabilities = ONE_GOAL

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or out of range.
        """
        options = resolve_options(ConfuciuXOptions, self.name, context.options)
        genome = build_genome(context.space)
        return ConfuciuXRun(
            genome=genome,
            policy=SequencePolicy(genome.counts),
            rng=np.random.default_rng(context.seed),
            archive=Archive(1.0 if context.directions[0] == "maximize" else -1.0),
            num_by_policy=round(options.policy_share * context.num_trials),
            options=options,
        )


@dataclass(slots=True)
class ConfuciuXRun:
    """The policy, what was told, and how far the run is.

    Attributes:
        genome: genes of the space; the policy's actions.
        policy: of the first stage.
        rng: the only source of randomness.
        archive: everything told.
        num_by_policy: outcomes after which the second stage begins.
        options: of the policy and of the second stage.
    """

    genome: Genome
    policy: SequencePolicy
    rng: np.random.Generator
    archive: Archive
    num_by_policy: int
    options: ConfuciuXOptions
    _num_told: int = 0
    _baseline: float = 0.5
    _actions: dict[DesignPoint, tuple[int, ...]] = field(default_factory=dict)
    _proposed: set[DesignPoint] = field(default_factory=set)

    def ask(self, count: int) -> Sequence[DesignPoint]:
        """Points of the policy while it learns, then children of the best."""
        by_stage = self._by_policy if self._is_learning or not self.archive.merits else self._child
        tries = (by_stage,) * ATTEMPTS + (lambda: self.genome.draw_point(self.rng),) * ATTEMPTS
        return propose_new(count, tries, known=self._proposed)

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Note outcomes, and while the policy proposes let it learn, also from starting points and pruned ones."""
        for outcome in outcomes:
            is_new = outcome.point not in self.archive.merits
            self.archive.add((outcome,))
            self._proposed.add(outcome.point)
            if is_new and self._is_learning:
                self._learn(outcome.point)
            self._num_told += not outcome.is_pruned

    @property
    def _is_learning(self) -> bool:
        """Whether the first stage is on."""
        return self._num_told < self.num_by_policy

    def _learn(self, point: DesignPoint) -> None:
        """One step on the reward of a point: the share of the others that it beats, ties counted half."""
        merit = self.archive.merits[point]
        others = [other for known, other in self.archive.merits.items() if known != point]
        if not others:
            return
        reward = sum(1.0 if merit > other else 0.5 if merit == other else 0.0 for other in others) / len(others)
        actions = self._actions.get(point) or tuple(int(gene) for gene in self.genome.encode(point))
        self.policy.reinforce(
            actions,
            advantage=reward - self._baseline,
            entropy_weight=self.options.entropy_weight,
            rate=self.options.learning_rate,
        )
        self._baseline += (1.0 - self.options.baseline_decay) * (reward - self._baseline)

    def _by_policy(self) -> DesignPoint:
        """A design that the policy chooses; its actions are kept, for several sequences may mean one point."""
        actions = self.policy.sample(self.rng)
        point = self.genome.decode(np.array(actions, dtype=np.int64))
        self._actions[point] = actions
        return point

    def _child(self) -> DesignPoint:
        """A design near one of the best, or between two of them."""
        parents = self.archive.best(self.options.parents)
        first, second = (self.genome.encode(parents[int(self.rng.integers(len(parents)))]) for _ in range(2))
        child = first
        if self.rng.random() < self.options.crossover_rate:
            child = np.where(self.rng.random(len(first)) < 0.5, first, second)
        return self.genome.decode(self._moved(child))

    def _moved(self, genes: Ints) -> Ints:
        """Genes with some of them a small step away; one at least, if there is any."""
        moved = genes.copy()
        if not len(moved):
            return moved
        chosen = self.rng.random(len(moved)) < self.options.mutation_rate
        chosen[int(self.rng.integers(len(moved)))] = True
        steps = self.rng.integers(1, self.options.largest_step + 1, size=len(moved)) * self.rng.choice(
            (-1, 1), size=len(moved)
        )
        return np.where(chosen, moved + steps, moved)
