"""Why nothing fits: the least memory any placement needs, the layer behind it, and what would make it fit.

Kernels at the end ask how little memory a placement can do with, on the recurrence of `placement.kernels`.
"""

from dataclasses import replace

import numpy as np

from phaze_opt.placement.kernels import (
    ALWAYS,
    AUTO,
    INPUT,
    MIN_MEMORY,
    NEVER,
    SMALLEST,
    STASH,
    STATE,
    WORKING_SET,
    Options,
    StageRules,
    chain_of,
    follow_choices,
    num_micro_batches,
    sweep_stages,
    sweep_table,
)
from phaze_opt.placement.options import POLICY_CODE, pack_options
from phaze_opt.placement.problem import PlacementProblem, RecomputePolicy, Shortfall
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.record.compiled import compiled
from phaze_opt.units import bytes_to_gib

ACTIVATION_FIELDS = ("stash_bytes", "input_bytes", "working_set_bytes")
"""Costs of a layer that shrink with the micro-batch."""


def explain_shortfall(problem: PlacementProblem, options: Options) -> Shortfall:
    """The certificate of infeasibility: no placement on these devices needs less than ``needed_bytes`` a device.

    Exact: the placement recurrence with memory as its objective, over every degree and number of stages.
    """
    needed, chosen, cuts = least_memory(options)
    if len(cuts) == 0:
        return _too_few_devices(problem)
    heaviest, first, last = _heaviest_layer(options, chosen, cuts)
    degree = int(options.degrees[chosen[0]])
    lone = _lone_bytes(options, int(chosen[0]), heaviest)
    if first == last:
        head = f"layer {heaviest} does not fit: it needs {_gib(needed)} even alone in a stage"
    elif lone > problem.memory_bytes:
        head = f"layer {heaviest} does not fit: it takes {_gib(lone)} by itself and its stage {_gib(needed)}"
    else:
        head = f"layer {heaviest} does not fit: layers {first} to {last} share a stage that needs {_gib(needed)}"
    reason = (
        f"{head} at tensor-parallel degree {degree}, {_gib(needed - problem.memory_bytes)} more than a device has "
        f"({_gib(problem.memory_bytes)}), and no placement needs less; it would fit with "
        f"{'; or with '.join(_remedies(problem, options, needed, degree))}"
    )
    return Shortfall(heaviest, degree, float(needed), float(problem.memory_bytes), reason)


def explain_stage(problem: PlacementProblem, options: Options, chosen: Ints, cuts: Ints, rows: Floats) -> Shortfall:
    """The fullest stage of a given placement that does not fit; ``rows`` as `describe_stages` gives them."""
    worst = int(np.argmax(rows[:, 2]))
    heaviest, first, last = _heaviest_layer(options, chosen, cuts)
    needed, degree = float(rows[worst, 2]), int(options.degrees[chosen[0]])
    reason = (
        f"the stage of layers {first} to {last} needs {_gib(needed)} at tensor-parallel degree {degree}, "
        f"{_gib(needed - problem.memory_bytes)} more than a device has ({_gib(problem.memory_bytes)}); "
        f"give devices {int(np.ceil(needed))} bytes, more stages or a larger tensor-parallel degree"
    )
    return Shortfall(heaviest, degree, needed, float(problem.memory_bytes), reason)


def _gib(num_bytes: float) -> str:
    """Bytes as people read capacities."""
    return f"{bytes_to_gib(num_bytes):.2f} GiB"


def _too_few_devices(problem: PlacementProblem) -> Shortfall:
    """Every tensor degree offered is larger than the cluster."""
    degree = min(option.tensor_parallel for option in problem.options)
    reason = (
        f"the smallest tensor-parallel degree offered, {degree}, exceeds the {problem.cluster.num_devices} devices; "
        "give more devices or offer a smaller degree"
    )
    return Shortfall(0, degree, 0.0, float(problem.memory_bytes), reason)


def _heaviest_layer(options: Options, chosen: Ints, cuts: Ints) -> tuple[int, int, int]:
    """(layer, first, last): the fullest stage of a placement and the layer that takes most of it."""
    option, num_stages, data_parallel = (int(value) for value in chosen)
    costs = np.diff(options.prefix[option], axis=1)
    num_micro = num_micro_batches(options, data_parallel)
    fullest = (-1.0, 0, 0, 0)
    for position in range(num_stages):
        first, stop = int(cuts[position]), int(cuts[position + 1])
        in_flight = min(num_stages - position, num_micro)
        stash = costs[STATE] + in_flight * costs[STASH]
        recomputed = costs[STATE] + in_flight * costs[INPUT]
        working = options.layer[option, WORKING_SET]
        stage_bytes = min(stash[first:stop].sum(), recomputed[first:stop].sum() + working[first:stop].max())
        heaviest = first + int(np.argmax(np.minimum(stash, recomputed + working)[first:stop]))
        fullest = max(fullest, (float(stage_bytes), heaviest, first, stop - 1))
    return fullest[1:]


def _lone_bytes(options: Options, option: int, layer: int) -> float:
    """Least that a layer takes in any stage: one micro-batch in flight, stashed or recomputed as the policy allows."""
    costs = np.diff(options.prefix[option], axis=1)[:, layer]
    recomputed = costs[INPUT] + options.layer[option, WORKING_SET, layer]
    activations = {NEVER: costs[STASH], ALWAYS: recomputed}.get(options.policy, min(costs[STASH], recomputed))
    return float(costs[STATE] + activations)


def _remedies(problem: PlacementProblem, options: Options, needed: float, degree: int) -> list[str]:
    """Single changes that would make it fit, the surest first."""
    remedies = [f"{_gib(needed)} of memory a device ({int(np.ceil(needed))} bytes)"]
    eased = options._replace(policy=POLICY_CODE[RecomputePolicy.AUTO])
    if problem.recompute is not RecomputePolicy.AUTO and _fits(eased):
        remedies.append("recompute auto")
    micro_batch = _fitting_micro_batch(problem)
    if micro_batch:
        remedies.append(f"micro-batch {micro_batch} instead of {problem.micro_batch} (if activations shrink with it)")
    num_devices = _fitting_devices(options)
    if num_devices > problem.cluster.num_devices:
        remedies.append(f"{num_devices} devices instead of {problem.cluster.num_devices}")
    if degree == max(option.tensor_parallel for option in problem.options):
        remedies.append(f"a tensor-parallel degree above {degree}, should the model admit one")
    return remedies


def _fits(options: Options) -> bool:
    """Whether some placement fits the memory."""
    return bool(least_memory(options)[0] <= options.memory_bytes)


def _fitting_micro_batch(problem: PlacementProblem) -> int:
    """Largest halving of the micro-batch under which it would fit, activations shrinking in proportion; 0 if none."""
    micro_batch = problem.micro_batch // 2
    while micro_batch >= 1:
        share = micro_batch / problem.micro_batch
        shrunk = tuple(
            replace(option, **{name: getattr(option, name) * share for name in ACTIVATION_FIELDS})
            for option in problem.options
        )
        if _fits(pack_options(replace(problem, options=shrunk, micro_batch=micro_batch))):
            return micro_batch
        micro_batch //= 2
    return 0


def _fitting_devices(options: Options) -> int:
    """Fewest devices of one replica that fits the memory; 0 if no number does."""
    counts = []
    for option, degree in enumerate(options.degrees):
        stages = np.nonzero(memory_by_stages(options, option) <= options.memory_bytes)[0]
        counts += [int(degree) * int(stages[0])] if len(stages) else []
    return min(counts, default=0)


@compiled
def _memory_rules(options: Options, num_micro: int, most_bytes: float) -> StageRules:
    """Rules that count memory only; AUTO becomes whichever of stash and recomputation takes less."""
    policy = SMALLEST if options.policy == AUTO else options.policy
    return StageRules(num_micro, policy, most_bytes, 0.0, 0.0)


@compiled
def least_memory(options: Options) -> tuple[float, Ints, Ints]:
    """The smallest capacity under which some placement fits: bytes, its (option, stages, d) and its stage bounds.

    For each t and number of stages the most replicas leave the fewest micro-batches in flight, hence least memory.
    Bytes are inf, and the rest empty, where every degree exceeds the devices.
    """
    n = options.layer.shape[2]
    best, chosen = np.inf, np.zeros(3, dtype=np.int64)
    for option in range(len(options.degrees)):
        chain, degree = chain_of(options, option), options.degrees[option]
        max_stages = min(n, options.num_devices // degree)
        if max_stages == 0:
            continue
        table = sweep_table(chain, _memory_rules(options, n, np.inf), max_stages, int(MIN_MEMORY))
        for num_stages in range(1, max_stages + 1):
            data_parallel = options.num_devices // (degree * num_stages)
            num_micro = num_micro_batches(options, data_parallel)
            needed = table[num_stages]
            if num_micro < num_stages:
                nothing = np.empty((0, 0), dtype=np.int64)
                rules = _memory_rules(options, num_micro, best)
                needed = sweep_stages(chain, rules, num_stages, int(MIN_MEMORY), np.inf, np.inf, nothing)
            if needed < best:
                best = needed
                chosen[0], chosen[1], chosen[2] = option, num_stages, data_parallel
    if best == np.inf:
        return best, chosen, np.zeros(0, dtype=np.int64)
    return best, chosen, _memory_cuts(options, chosen)


@compiled
def _memory_cuts(options: Options, chosen: Ints) -> Ints:
    """Stage bounds of a placement of least memory."""
    option, num_stages, data_parallel = chosen[0], chosen[1], chosen[2]
    chain = chain_of(options, option)
    rules = _memory_rules(options, num_micro_batches(options, data_parallel), np.inf)
    choice = np.full((num_stages + 1, chain.layer.shape[1] + 1), -1, dtype=np.int64)
    sweep_stages(chain, rules, num_stages, int(MIN_MEMORY), np.inf, np.inf, choice)
    return follow_choices(choice)


@compiled
def memory_by_stages(options: Options, option: int) -> Floats:
    """Least memory of one replica of each number of stages 1..n at one degree, however many devices that takes."""
    n = options.layer.shape[2]
    rules = _memory_rules(options, num_micro_batches(options, 1), np.inf)
    return sweep_table(chain_of(options, option), rules, n, int(MIN_MEMORY))
