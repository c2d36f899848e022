"""`KeptPointSampler`: uniform over the kept points of a search space, not over encoded coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from phaze_opt.space.codec import Codec
from phaze_opt.space.search_space import SearchSpace


class KeptPointSampler(BaseSampler):
    """Draws every kept point of a space with the same probability.

    The encoding of semantics 8 maps many coordinates to one point (halvings below a limit that is smaller for large
    cores), so uniform coordinates favour the points at the end of an axis. This sampler draws an index and encodes
    the point. Parameters of any other search space, or a part of this one, are drawn uniformly and independently.

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
        self._rng = np.random.default_rng(seed)
        self._independent = RandomSampler(seed=seed)

    def reseed_rng(self) -> None:
        """Draw new entropy, as Optuna asks of the copies of a sampler in parallel workers."""
        self._rng = np.random.default_rng()
        self._independent.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The space's own distributions, unless the study is known to hold another search space."""
        for past in study.get_trials(deepcopy=False):
            if past.distributions and any(
                self._distributions.get(name) != distribution for name, distribution in past.distributions.items()
            ):
                return {}
        return dict(self._distributions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A kept point's parameters, or uniform ones if ``search_space`` is not the space's own."""
        if search_space != self._distributions:
            return {
                name: self._independent.sample_independent(study, trial, name, distribution)
                for name, distribution in search_space.items()
            }
        index = int(self._rng.integers(self._space.size))
        return dict(self._codec.encode(self._space.point(index)))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Uniform over the distribution."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)
