"""Random chains, as the checker and as the solvers see them."""

from dataclasses import dataclass

import numpy as np

from phaze_opt.certify.check.exact import exact_batch_time
from phaze_opt.certify.check.pipelines import Batch, Memory
from phaze_opt.certify.check.problem_data import LayerSizes, Sharded
from phaze_opt.certify.check.relaxed import list_choices, relaxed_batch_time, start_values
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.placement.problem import LayerCosts, PlacementProblem, RecomputePolicy

KINDS = 3


@dataclass(frozen=True)
class RandomChain:
    """A placement problem, and the same for the checker: sharded options and times of several rows."""

    problem: PlacementProblem
    chain: tuple[int, ...]
    options: tuple[Sharded, ...]
    times: list[np.ndarray]
    batch: Batch
    memory: Memory

    @property
    def choices(self):
        return list_choices(self.options, self.problem.cluster, batch=self.batch, memory=self.memory)

    def relaxed(self):
        """Of every row; infinite where nothing fits."""
        choices = self.choices
        return relaxed_batch_time(choices, self.times) if choices else np.full(len(self.times[0]), np.inf)

    def exact(self):
        """Of the first row."""
        choices = self.choices
        if not choices:
            return np.inf
        floor_s, value = start_values(choices, self.times)
        rows = [of_option[0] for of_option in self.times]
        return exact_batch_time(choices, rows, (floor_s[:, 0], value[:, 0]), memory=self.memory)


def random_chain(seed, *, is_usual, max_layers=13, num_rows=1):
    """Usual is embedding, equal blocks, head; otherwise kinds in any order."""
    rng = np.random.default_rng(seed)
    length = int(rng.integers(3, max_layers + 1))
    kinds = (0, *[1] * (length - 2), 2) if is_usual else rng.integers(0, KINDS, length)
    chain = tuple(int(kind) for kind in kinds)
    devices, network = int(rng.integers(4, 40)), str(rng.choice(["two-level", "phaze"]))
    policy = list(RecomputePolicy)[int(rng.integers(3))]
    made = [_option(rng, chain, degree, num_rows) for degree in (1, 2, 4)]
    memory = Memory(float(rng.choice([0.5e9, 1e9, 2e9, 4e9, 64e9])), policy)
    batch = Batch(int(rng.integers(4, 200)), int(rng.choice([1, 2, 4])))
    problem = PlacementProblem(
        options=tuple(costs for costs, _, _ in made),
        cluster=Cluster(devices, load_network(network, num_devices=devices, constants=load_constants())),
        memory_bytes=memory.capacity_bytes,
        global_batch=batch.global_batch,
        micro_batch=batch.micro_batch,
        recompute=policy,
    )
    options = tuple(sharded for _, sharded, _ in made)
    return RandomChain(problem, chain, options, [times for _, _, times in made], batch, memory)


def _option(rng, chain, degree, num_rows):
    """One tensor degree: costs of the first row for solvers, sizes and times of all rows for the checker."""

    def each(low, high):
        return rng.uniform(low, high, size=KINDS) / degree

    sizes = LayerSizes(
        state=each(1e8, 4e9),
        gradient=each(1e7, 1e9),
        stash=each(1e7, 1e9),
        inputs=each(1e6, 1e8),
        working_set=each(1e7, 2e9),
        output=each(1e6, 5e8),
    )
    times = rng.uniform((1e-4, 1e-4, 1e-5), (3e-3, 6e-3, 1e-3), size=(num_rows, KINDS, 3)) / degree
    last, share = chain[-1], float(rng.random() < 0.5) * 0.5
    sharded = Sharded(
        degree=degree,
        chain=np.array(chain),
        sizes=sizes,
        tied_state=share * sizes.state[last],
        tied_gradient=share * sizes.gradient[last],
        tied_share=share,
        phases=(),
    )
    along = list(chain)
    costs = LayerCosts(
        tensor_parallel=degree,
        forward_s=times[0, along, 0],
        backward_s=times[0, along, 1],
        update_s=times[0, along, 2],
        state_bytes=sizes.state[along],
        gradient_bytes=sizes.gradient[along],
        stash_bytes=sizes.stash[along],
        input_bytes=sizes.inputs[along],
        working_set_bytes=sizes.working_set[along],
        output_bytes=sizes.output[along],
        tied_state_bytes=sharded.tied_state,
        tied_gradient_bytes=sharded.tied_gradient,
        tied_update_s=share * float(times[0, last, 2]),
    )
    return costs, sharded, times
