"""`KeptPointSampler`: uniform over the kept points of a search space, not over encoded coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from phaze_opt.hardware.template import DesignPoint
from phaze_opt.space.codec import Codec
from phaze_opt.space.search_space import SearchSpace


class KeptPointSampler(BaseSampler):
    """Draws every kept point of a space with the same probability.

    The encoding of semantics 8 maps many coordinates to one point where few cores fit, so uniform coordinates favour
    the points of large cores. This sampler draws a point for each trial, from the seed and the trial's number alone,
    and gives its coordinates. Parameters that are not the space's own are drawn uniformly and independently.

    Args:
        space: the points.
        codec: its codec, made from ``space`` if not given.
        seed: of the generator; without one it draws entropy, as Optuna's samplers do.
    """

    def __init__(self, space: SearchSpace, *, codec: Codec | None = None, seed: int | None = None) -> None:
        """Take the space; nothing is drawn yet."""
        self._space = space
        self._codec = codec or Codec(space)
        self._distributions: dict[str, BaseDistribution] = dict(self._codec.distributions())
        self._seeds = np.random.SeedSequence(seed)
        self._independent = RandomSampler(seed=seed)

    def point_of(self, trial_number: int) -> DesignPoint:
        """The point of a trial."""
        seeds = np.random.SeedSequence(self._seeds.entropy, spawn_key=(trial_number,))
        return self._space.point(int(np.random.default_rng(seeds).integers(self._space.size)))

    def reseed_rng(self) -> None:
        """Draw new entropy, as Optuna asks of the copies of a sampler in parallel workers."""
        self._seeds = np.random.SeedSequence()
        self._independent.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Nothing: which parameters a trial has is known only when it asks for them."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Each parameter as `sample_independent` gives it."""
        return {name: self.sample_independent(study, trial, name, search_space[name]) for name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The coordinate of the trial's point, or a uniform value if the parameter is not the space's own."""
        if self._distributions.get(param_name) == param_distribution:
            return self._codec.encode(self.point_of(trial.number))[param_name]
        return self._independent.sample_independent(study, trial, param_name, param_distribution)
