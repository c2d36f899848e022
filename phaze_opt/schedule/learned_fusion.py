"""A learned mapper: a small network that cuts a chain into groups in one look, as DNNFuser (arXiv 2201.11218) does.

For every border it sees what the nearest layers take alone, as a pair and in the middle of a group, and how much of the
buffer these need, and says whether the border lies inside a group. It tries no groups, so its time rises with the
layers and not with their square. The weights in ``learned_fusion.json`` were learnt from what the exact program makes
of drawn chains (`experiments/layer_fusion/train.py`); no model was among them.
"""

import json
from collections.abc import Iterator
from functools import cache
from importlib import resources

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.record.near_ties import comparable
from phaze_opt.schedule.layer_fusion import ALONE, FIRST, INNER, LAST, FusionGroup, FusionProblem

REACH = 2
"""Borders on each side that the network sees beside its own."""
DIGITS = 6
"""Of a score that count: sums of products end in different digits on different machines."""
THRESHOLDS = (0.0, -1.5, 1.5)
"""Of the scores of borders inside groups: what the network says, and what it says with more and with less courage."""
_OUTSIDE = -1.0
"""What stands for a layer or a border that there is not."""
_LARGEST = 4.0
"""Buffers, or mean layers, beyond which a size says no more."""


class LearnedFuser:
    """Groups by the network's word; what cannot run so, or gains nothing, is halved. Nothing is drawn.

    Of the groups at each of `THRESHOLDS` those are taken that take least time, the first of equal ones.
    """

    name = "learned"
    is_exact = False

    def fuse(self, problem: FusionProblem, *, seed: int = 0) -> tuple[FusionGroup, ...]:
        """Groups in one look."""
        del seed
        chain = _Chain(problem)
        scores = border_scores(_features(chain)) if problem.num_layers > 1 else np.zeros(0)
        cuts = dict.fromkeys(tuple(np.flatnonzero(scores <= least).tolist()) for least in THRESHOLDS)
        found = [chain.cut_at(cut) for cut in cuts]
        taken = comparable(np.array([chain.taken_s(groups) for groups in found]))
        return found[int(taken.argmin())]


def border_scores(features: Floats) -> Floats:
    """How sure the network is that each border lies inside a group, above 0 if it does; shape (borders,)."""
    values, (*hidden, last) = features, _network()
    for weights, bias in hidden:
        values = np.tanh(values @ weights + bias)
    return np.asarray(np.round((values @ last[0] + last[1])[:, 0], DIGITS))


@cache
def _network() -> tuple[tuple[Floats, Floats], ...]:
    """Weights and bias of every layer of the network, first to last."""
    text = resources.files("phaze_opt.schedule").joinpath("learned_fusion.json").read_text(encoding="utf-8")
    return tuple((np.array(each["weights"]), np.array(each["bias"])) for each in json.loads(text)["layers"])


def border_features(problem: FusionProblem) -> Floats:
    """What the network sees of every border, shape (layers - 1, features)."""
    return _features(_Chain(problem))


def _features(chain: "_Chain") -> Floats:
    problem, count = chain.problem, chain.problem.num_layers - 1
    buffers = max(problem.capacity_bytes, 1)
    of_borders = chain.pair_gains, np.minimum(problem.border_bytes / buffers, _LARGEST)
    of_layers = (
        chain.inner_gains,
        np.minimum(problem.weight_bytes / buffers, _LARGEST),
        np.minimum(chain.alone_s / chain.alone_s.mean(), _LARGEST),
    )
    seen = [_around(each, REACH) for each in of_borders] + [_around(each, REACH + 1)[1:] for each in of_layers]
    return np.concatenate([each[:count] for each in seen], axis=1)


def _around(values: Floats, reach: int) -> Floats:
    """Values from ``reach`` places before each to as many behind it."""
    padded = np.concatenate([np.full(reach, _OUTSIDE), values, np.full(reach, _OUTSIDE)])
    return sliding_window_view(padded, 2 * reach + 1)


class _Chain:
    """What layers of a problem take alone, in pairs, and in the groups that are asked for."""

    def __init__(self, problem: FusionProblem) -> None:
        """Every layer alone, in its best way, and next to its neighbours."""
        self.problem = problem
        self._parts = np.array([each.num_parts for each in problem.choices])
        self._stays = np.array([each.holds_weights for each in problem.choices])
        self._choices = np.arange(len(problem.choices))
        # Behind the slices that there are comes one of no group.
        nothing = np.full((*problem.seconds.shape[:-1], 1), np.inf)
        self._seconds = np.concatenate([problem.seconds, nothing], axis=-1)
        layers, border = np.arange(problem.num_layers), problem.border_bytes
        weights = problem.weight_bytes
        alone_s = self._take(layers, ALONE, self._slices(0 * weights, weights))
        self._way, self.alone_s = alone_s.argmin(axis=1), alone_s.min(axis=1)
        slices = self._slices(border, weights[:-1] + weights[1:])
        pair_s = self._take(layers[:-1], FIRST, slices) + self._take(layers[1:], LAST, slices)
        self.pair_gains = _gains(pair_s, self.alone_s[:-1] + self.alone_s[1:])
        self.pair_gains[border < 0] = _OUTSIDE
        beside = np.concatenate([[0], border]) + np.concatenate([border, [0]])
        self.inner_gains = _gains(self._take(layers, INNER, self._slices(beside, weights)), self.alone_s)

    def cut_at(self, borders: tuple[int, ...]) -> tuple[FusionGroup, ...]:
        """Groups that end at some borders."""
        stops = [*(border + 1 for border in borders), self.problem.num_layers]
        firsts = [0, *stops[:-1]]
        return tuple(group for first, stop in zip(firsts, stops, strict=True) for group in self.cut(first, stop))

    def taken_s(self, groups: tuple[FusionGroup, ...]) -> float:
        """What groups of `cut` take together, s."""
        singles = [each.first for each in groups if each.stop - each.first == 1]
        longer = [self._group_s(each.first, each.stop)[each.choice] for each in groups if each.stop - each.first > 1]
        return float(self.alone_s[singles].sum() + sum(longer))

    def cut(self, first: int, stop: int) -> Iterator[FusionGroup]:
        """The layers as one group in its best way, or halved where that is no better than each alone."""
        if stop - first == 1:
            yield FusionGroup(first, stop, int(self._way[first]))
            return
        taken = self._group_s(first, stop)
        choice = int(taken.argmin())
        if taken[choice] <= self.alone_s[first:stop].sum():
            yield FusionGroup(first, stop, choice)
            return
        middle = (first + stop) // 2
        yield from self.cut(first, middle)
        yield from self.cut(middle, stop)

    def _group_s(self, first: int, stop: int) -> Floats:
        """What several layers take as one group by each choice, infinite where they cannot, s."""
        problem = self.problem
        inside = problem.border_bytes[first : stop - 1]
        if (inside < 0).any():
            return np.full(len(self._choices), np.inf)
        fullest = (np.concatenate([[0], inside]) + np.concatenate([inside, [0]])).max()
        slices = self._slices(np.array([fullest]), problem.weight_bytes[first:stop].sum()[None])
        places = np.full(stop - first, INNER)
        places[0], places[-1] = FIRST, LAST
        kinds = problem.kinds[first:stop, None]
        taken: Floats = self._seconds[kinds, self._choices, places[:, None], slices].sum(axis=0)
        return taken

    def _take(self, layers: Ints, place: int, slices: Ints) -> Floats:
        """What layers take at one place by each choice, shape (layers, choices), s."""
        taken: Floats = self._seconds[self.problem.kinds[layers, None], self._choices, place, slices]
        return taken

    def _slices(self, border_bytes: Ints, weight_bytes: Ints) -> Ints:
        """Slices that borders and weights of so many bytes reserve by each choice, shape (n, choices)."""
        problem = self.problem
        needed = -(-border_bytes[:, None] // self._parts) + self._stays * weight_bytes[:, None]
        whole: Ints = -(-needed * problem.num_slices // max(problem.capacity_bytes, 1))
        return np.minimum(whole, problem.num_slices)


def _gains(taken_s: Floats, alone_s: Floats) -> Floats:
    """Share that the best way of each saves, no less than what stands for nothing; shape (n,)."""
    return np.asarray(np.maximum(1.0 - taken_s.min(axis=1) / alone_s, _OUTSIDE))
