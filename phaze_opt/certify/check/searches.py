"""Searches of blocks done again: that no schedule is shorter than stated, by levels of partial schedules.

Operators are placed one after the other in the order of their starts, each as early as it fits beside those placed and
not before the last of them started. That loses no makespan: take any schedule, place its operators in the order of its
starts in their modes, and none starts later than there, because what then runs beside it began no later and ran there
too. So where no partial schedule is left that might end before the makespan stated, there is none. Left out are those

- that a bound keeps from ending before: paths of shortest latencies behind each operator, or the price under a vector
  of the block of what is left to do, operators that still run counted with their rest;
- that another of the same operators dominates: it started its last operator no later, and from the other's last start
  on whatever still runs in it ends no later than in the other and takes no more cores there. What can follow the other
  can follow it at the same times.

Only operators that last are searched: one of no length might start within a spread one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from phaze_opt.certify.certificate import SearchEntry
from phaze_opt.certify.check.prices import BlockShape, Prices, price_vector
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.schedule.problem import Exclusivity

MAX_STATES = 50_000
"""Partial schedules kept over all levels; a search that needs more proves nothing here."""
CHUNK_STATES = 4096
SHORTEST_S, LONGEST_S = 1e-30, 1e30
"""Of latencies and makespans: products and ratios of numbers between these neither vanish nor overflow."""


@dataclass(frozen=True, slots=True)
class PricedSearch:
    """A search found valid: it bounds designs with no more cores by the least ratio of their latencies to its own.

    Attributes:
        one_core_s, spread_s: its latencies, shape (num_operators,), s.
        makespan_s: that no schedule undercuts, s.
        max_cores: tensor and vector cores.
    """

    one_core_s: Floats
    spread_s: Floats
    makespan_s: float
    max_cores: tuple[int, int]

    @property
    def needs_time(self) -> bool:
        """Operators of no length have the ratio 0, which bounds by nothing: no row is refused for them."""
        return False

    def lower_s(self, spread_s: Floats, one_core_s: Floats, num_cores: Floats) -> Floats:  # noqa: ARG002 -- `max_cores`
        """The bound, shape (rows,), s; arguments as of `Prices.lower_s`."""
        ratio = np.concatenate((spread_s / self.spread_s, one_core_s / self.one_core_s), axis=1).min(axis=1)
        bound: Floats = ratio * self.makespan_s
        return bound


def price_search(entry: SearchEntry, shape: BlockShape) -> PricedSearch | str:
    """Search again; what the entry bounds by, or the rule that it breaks."""
    count = shape.num_operators
    if not (len(entry.one_core_s) == len(entry.spread_s) == count):
        return f"lists {len(entry.one_core_s)} and {len(entry.spread_s)} latencies, not {count}"
    if not all(SHORTEST_S <= each <= LONGEST_S for each in (*entry.one_core_s, *entry.spread_s, entry.makespan_s)):
        return f"holds a latency or makespan that is not from {SHORTEST_S:g} to {LONGEST_S:g} s"
    if min(entry.num_cores) < 1:
        return f"is on {entry.num_cores} cores"
    vectors = []
    for number, vector in enumerate(entry.vectors):
        priced = price_vector(vector, shape)
        if isinstance(priced, str):
            return f"vector {number}: {priced}"
        vectors.append(priced)
    fault = _Search(entry, shape, vectors).fault()
    if fault is not None:
        return fault
    return PricedSearch(np.array(entry.one_core_s), np.array(entry.spread_s), entry.makespan_s, entry.num_cores)


class _Level(NamedTuple):
    """Partial schedules with the same number of operators placed.

    Attributes:
        placed, is_spread: of each operator, shape (states, num_operators).
        end: when it ends, 0 where it is not placed, same shape, s.
        last: when the last of them started, shape (states,), s.
    """

    placed: Flags
    is_spread: Flags
    end: Floats
    last: Floats

    def take(self, rows: Ints | Flags | slice) -> "_Level":
        """Some of them."""
        return _Level._make(column[rows] for column in self)


class _Search:
    """One search by levels."""

    def __init__(self, entry: SearchEntry, shape: BlockShape, vectors: list[Prices]) -> None:
        """Prepare lengths, cores taken, prices and paths."""
        self._count = shape.num_operators
        self._enough = entry.makespan_s
        self._precedes = shape.precedes
        self._lengths = np.array((entry.one_core_s, entry.spread_s))
        self._cores = np.array(entry.num_cores, dtype=np.float64)
        all_cores = np.broadcast_to(self._cores, shape.uses.shape)
        is_chip = shape.exclusivity is Exclusivity.CHIP
        self._needs = np.array((1.0 * shape.uses, all_cores if is_chip else shape.uses * self._cores))
        self._prices = [(each.single + each.cores @ (1.0 / self._cores), each.spread) for each in vectors]
        self._shortest = self._lengths.min(axis=0)
        # With all that comes after it counted first, an operator comes after those it precedes.
        self._order = np.argsort(-shape.precedes.sum(axis=1), kind="stable").tolist()
        self._tails = np.zeros(self._count)
        for i in reversed(self._order):
            self._tails[i] = max((self._tails[j] + self._shortest[j] for j in self._after(i)), default=0.0)

    def fault(self) -> str | None:
        """What keeps the search from proving the makespan; None if nothing does."""
        nothing = np.zeros((1, self._count), dtype=np.bool_)
        level, num_states = _Level(nothing, nothing, np.zeros((1, self._count)), np.zeros(1)), 0
        for _ in range(self._count):
            level = _undominated(self._children(level))
            num_states += len(level.last)
            if num_states > MAX_STATES:
                return f"its search takes more than {MAX_STATES:,} partial schedules"
            if not len(level.last):
                return None
        return f"a schedule takes {level.end.max(axis=1).min():.9g} s, less than {self._enough:.9g} s"

    def _after(self, operator: int) -> list[int]:
        return np.flatnonzero(self._precedes[operator]).tolist()

    def _children(self, level: _Level) -> _Level:
        """All partial schedules with one operator more that may still end before the makespan."""
        found = [
            child
            for start in range(0, len(level.last), CHUNK_STATES)
            for child in self._children_of(level.take(slice(start, start + CHUNK_STATES)))
        ]
        return _Level._make(np.concatenate(columns) for columns in zip(*found, strict=True))

    def _children_of(self, level: _Level) -> Iterator[_Level]:
        for operator in range(self._count):
            is_ready = ~level.placed[:, operator] & level.placed[:, self._precedes[:, operator]].all(axis=1)
            ready = level.take(is_ready)
            for mode in (False, True):
                child = self._with(ready, operator, is_spread=mode)
                yield child.take(self._bound(child) < self._enough)

    def _with(self, level: _Level, operator: int, *, is_spread: bool) -> _Level:
        """The states with one more operator, as early as it fits."""
        earliest = np.maximum(level.last, level.end[:, self._precedes[:, operator]].max(axis=1, initial=0.0))
        # What was placed began by then, so cores only fall free: at the ends of what still runs.
        moments = np.concatenate((earliest[:, None], np.maximum(level.end, earliest[:, None])), axis=1)
        runs = level.end[:, None, :] > moments[:, :, None]
        taken = np.where(level.is_spread[:, :, None], self._needs[1], self._needs[0])
        need = self._needs[int(is_spread), operator]
        used = np.einsum("smn,snk->smk", runs.astype(np.float64), taken)
        fits = ((used + need <= self._cores) | (need == 0.0)).all(axis=2)
        begin = np.where(fits, moments, np.inf).min(axis=1)
        placed, spread, end = level.placed.copy(), level.is_spread.copy(), level.end.copy()
        placed[:, operator], spread[:, operator] = True, is_spread
        end[:, operator] = begin + self._lengths[int(is_spread), operator]
        return _Level(placed, spread, end, begin)

    def _bound(self, level: _Level) -> Floats:
        """What no completion of a state ends before, shape (states,), s."""
        starts = np.repeat(level.last[:, None], self._count, axis=1)
        for j in self._order:
            before = np.flatnonzero(self._precedes[:, j])
            ends = np.where(level.placed[:, before], level.end[:, before], starts[:, before] + self._shortest[before])
            starts[:, j] = np.maximum(starts[:, j], ends.max(axis=1, initial=0.0))
        ends = np.where(level.placed, level.end, starts + self._shortest)
        bound: Floats = (ends + self._tails).max(axis=1)
        rest = np.maximum(level.end - level.last[:, None], 0.0)
        for single, spread in self._prices:
            to_do = np.minimum(self._lengths[0] * single, self._lengths[1] * spread)
            priced = np.where(level.placed, rest * np.where(level.is_spread, spread, single), to_do)
            bound = np.maximum(bound, level.last + priced.sum(axis=1))
        return bound


def _undominated(level: _Level) -> _Level:
    """Those that no other of the same operators dominates; of equal ones the first."""
    if not len(level.last):
        return level
    _, group = np.unique(level.placed, axis=0, return_inverse=True)
    group = group.reshape(-1)
    order = np.lexsort((np.maximum(level.end, level.last[:, None]).sum(axis=1), level.last, group))
    firsts = np.flatnonzero(np.diff(group[order], prepend=-1))
    kept = [rows[_survivors(level.take(rows))] for rows in np.split(order, firsts[1:])]
    return level.take(np.concatenate(kept))


def _survivors(states: _Level) -> Flags:
    """Which states of one set of operators are not dominated by another that comes before."""
    is_left = np.ones(len(states.last), dtype=np.bool_)
    over = np.maximum(states.end, states.last[:, None])
    for number in range(len(states.last)):
        if not is_left[number]:
            continue
        rivals = slice(number + 1, None)
        end, spread = states.end[number], states.is_spread[number]
        is_over = end <= states.last[rivals, None]
        takes_no_more = is_over | (spread <= states.is_spread[rivals])
        is_no_later = states.last[number] <= states.last[rivals]
        is_left[rivals] &= ~(is_no_later & (end <= over[rivals]).all(axis=1) & takes_no_more.all(axis=1))
    return is_left
