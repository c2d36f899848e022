"""ConfuciuX: the policy's gradient against finite differences, its stages, and that it beats chance."""

import itertools

import numpy as np
import pytest
from toy_runs import SPACE, toy_context

from phaze_opt.search.confuciux.strategy import ConfuciuXStrategy, SequencePolicy
from phaze_opt.search.genome import build_genome
from phaze_opt.search.strategy import Outcome
from phaze_opt.testing.problems import toy_throughput
from phaze_opt.testing.strategies import ToyJudge, propose

GENOME = build_genome(SPACE)
COUNTS = (3, 2, 4)


def trained(seed: int) -> SequencePolicy:
    """A policy away from uniform."""
    policy, rng = SequencePolicy(COUNTS), np.random.default_rng(seed)
    for table in (*policy.bias, *policy.context):
        np.copyto(table, rng.normal(size=table.shape))
    return policy


def log_probability(policy: SequencePolicy, actions: tuple[int, ...]) -> float:
    """Logarithm of the chance of a whole sequence."""
    return float(sum(np.log(policy.probabilities(step, actions)[action]) for step, action in enumerate(actions)))


def test_chances_of_all_sequences_sum_to_one() -> None:
    policy = trained(0)
    sequences = itertools.product(*(range(count) for count in COUNTS))
    assert sum(np.exp(log_probability(policy, actions)) for actions in sequences) == pytest.approx(1.0)


def test_samples_follow_the_chances() -> None:
    policy, rng = trained(1), np.random.default_rng(0)
    drawn = [policy.sample(rng) for _ in range(4000)]
    for actions in ((0, 0, 0), (2, 1, 3), (1, 0, 2)):
        expected = np.exp(log_probability(policy, actions))
        assert drawn.count(actions) / 4000 == pytest.approx(expected, abs=4 * np.sqrt(expected / 4000) + 1e-3)


def objective_of(policy: SequencePolicy, actions: tuple[int, ...], *, advantage: float, entropy_weight: float) -> float:
    entropies = 0.0
    for step in range(len(COUNTS)):
        shares = policy.probabilities(step, actions)
        entropies -= float(shares @ np.log(shares))
    return advantage * log_probability(policy, actions) + entropy_weight * entropies


@pytest.mark.parametrize(("advantage", "entropy_weight"), [(1.0, 0.0), (-0.7, 0.0), (0.0, 1.0), (0.4, 0.3)])
def test_the_step_is_the_gradient_by_finite_differences(advantage: float, entropy_weight: float) -> None:
    actions, width = (1, 1, 2), 1e-6
    terms = {"advantage": advantage, "entropy_weight": entropy_weight}
    stepped = trained(2)
    before = [table.copy() for table in (*stepped.bias, *stepped.context)]
    stepped.reinforce(actions, rate=1.0, **terms)
    for position, (old, new) in enumerate(zip(before, (*stepped.bias, *stepped.context), strict=True)):
        for index in np.ndindex(old.shape):
            probe = trained(2)
            table = (*probe.bias, *probe.context)[position]
            base = objective_of(probe, actions, **terms)
            table[index] += width
            slope = (objective_of(probe, actions, **terms) - base) / width
            assert (new - old)[index] == pytest.approx(slope, abs=1e-4)


def test_rewarded_actions_become_likely_and_context_is_learned() -> None:
    """Reward 1 if the second action equals the first (mod 2), else 0: the bias alone could not learn it."""
    policy, rng = SequencePolicy((2, 2)), np.random.default_rng(0)
    for _ in range(400):
        actions = policy.sample(rng)
        policy.reinforce(actions, advantage=float(actions[0] == actions[1]) - 0.5, entropy_weight=0.05, rate=0.3)
    hits = [actions[0] == actions[1] for actions in (policy.sample(rng) for _ in range(300))]
    assert np.mean(hits) > 0.9


def test_the_first_stage_learns_and_the_second_stays_near_the_best() -> None:
    run = ConfuciuXStrategy().start(toy_context(num_trials=40, policy_share=0.5, largest_step=1, crossover_rate=0.0))
    number = 0
    for _ in range(5):
        asked = run.ask(4)
        run.tell([Outcome(number + i, point, (toy_throughput(point),)) for i, point in enumerate(asked)])
        number += 4
    biases = np.concatenate(run.policy.bias)  # type: ignore[attr-defined]
    assert np.abs(biases).max() > 0
    best = [GENOME.encode(point) for point in run.archive.best(5)]  # type: ignore[attr-defined]
    for child in run.ask(8):
        # One step in genes; the canonical genes of a point may lie a little further.
        distance = min(np.abs(GENOME.encode(child) - parent).max() for parent in best)
        assert distance <= 2
    run.tell([])
    assert np.array_equal(biases, np.concatenate(run.policy.bias))  # type: ignore[attr-defined]


def test_rewards_do_not_depend_on_the_scale_of_the_objective() -> None:
    """Ranks only: any rising function of the objective gives the same proposals."""

    def points(scale: float, power: float):  # type: ignore[no-untyped-def]
        def judge(number, point):  # type: ignore[no-untyped-def]
            return Outcome(number, point, (scale * toy_throughput(point) ** power,))

        return propose(ConfuciuXStrategy(), toy_context(seed=5), judge=judge)

    assert points(1.0, 1.0) == points(1e-9, 3.0)


def test_starting_points_and_pruned_points_teach_the_policy() -> None:
    run = ConfuciuXStrategy().start(toy_context())
    starts = [SPACE.point(index) for index in (3, 500)]
    run.tell([Outcome(0, starts[0], (1.0,)), Outcome(1, starts[1], (2.0,))])
    assert any(np.abs(bias).max() > 0 for bias in run.policy.bias)  # type: ignore[attr-defined]
    asked = run.ask(4)
    assert not set(asked) & set(starts)
    run.tell([Outcome(-1, point, (0.5,), is_pruned=True) for point in asked[:2]])
    assert run._num_told == 2  # type: ignore[attr-defined]


def test_without_a_policy_share_the_search_is_genetic_from_the_start() -> None:
    points = propose(ConfuciuXStrategy(), toy_context(policy_share=0.0, num_trials=20), judge=ToyJudge(), batch=1)
    assert len(set(points)) == 20
