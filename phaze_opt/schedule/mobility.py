"""Earliest and latest starts of operators, their slack and the critical path of a graph (CPM)."""

from collections.abc import Sequence
from dataclasses import dataclass

ROUNDING = 1e-9
"""Slack, as a share of the critical path, that counts as none."""


@dataclass(frozen=True, slots=True)
class Mobility:
    """Slack of every operator, s.

    Attributes:
        asap_s: earliest start of each.
        slack_s: ALAP - ASAP of each; 0 on the critical path.
        length_s: of the critical path.
    """

    asap_s: tuple[float, ...]
    slack_s: tuple[float, ...]
    length_s: float

    def is_critical(self, index: int) -> bool:
        """Whether an operator has no slack, up to rounding."""
        return self.slack_s[index] <= ROUNDING * self.length_s


def find_mobility(order: Sequence[int], before: Sequence[Sequence[int]], durations_s: Sequence[float]) -> Mobility:
    """ASAP and ALAP by one pass each way.

    Args:
        order: a topological order.
        before: direct predecessors of each operator.
        durations_s: of each, s.
    """
    asap, end_s = [0.0] * len(durations_s), [0.0] * len(durations_s)
    for index in order:
        start = 0.0
        for source in before[index]:
            start = max(start, end_s[source])
        asap[index], end_s[index] = start, start + durations_s[index]
    length = max(end_s, default=0.0)
    latest_end = [length] * len(durations_s)
    for index in reversed(order):
        latest_start = latest_end[index] - durations_s[index]
        for source in before[index]:
            latest_end[source] = min(latest_end[source], latest_start)
    slack = [end - duration - start for end, duration, start in zip(latest_end, durations_s, asap, strict=True)]
    return Mobility(tuple(asap), tuple(each if each > 0.0 else 0.0 for each in slack), length)
