"""The ask-and-tell loop of one search, in steps, so that a caller may run many searches side by side."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Effort, Evaluation
from phaze_opt.objective.goals import front_indices, goal_directions, goal_values
from phaze_opt.record.progress import OnProgress, Progress
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.evaluators import Evaluator, PendingEvaluation
from phaze_opt.search.events import Observers, TrialFinished
from phaze_opt.search.probe import CountingProbe
from phaze_opt.search.pruner import PrunerRun, Verdict
from phaze_opt.search.result import SearchResult, Trial, TrialLog, open_gap_of, rank
from phaze_opt.search.strategy import Outcome, StrategyRun

MAX_PRUNED_IN_A_ROW = 1000
"""A strategy that may repeat itself stalls when so many of its proposals are dropped one after the other."""
ASK_AHEAD = 4096
"""Points asked for at a time of a strategy whose order is fixed, when a pruner judges them: bounds like company."""
WAIT_S = 0.02


@dataclass(slots=True)
class Judging:
    """The pruner of a search.

    Attributes:
        run: says what to drop.
        can_ask_ahead: the strategy enumerates, so that asking far ahead changes nothing.
        may_repeat: the strategy may propose a point again, and so go on for ever with what is dropped.
        is_safe: what it drops is worse than an incumbent, by proof.
        dropped: what it dropped, with the bound of each point.
        num_in_a_row: proposals dropped since the last that was kept.
    """

    run: PrunerRun
    can_ask_ahead: bool
    may_repeat: bool = True
    is_safe: bool = False
    dropped: dict[DesignPoint, tuple[float, ...]] = field(default_factory=dict)
    num_in_a_row: int = 0


@dataclass(slots=True)
class SearchLoop:
    """The state of a running search.

    Attributes:
        config: how to search.
        search_id: its identity.
        run: the strategy's run.
        log: finished trials of this and earlier runs.
        observers: told of every trial in order.
        on_progress: called after every trial.
        start_points: evaluated and told before anything is asked.
        judging: the pruner, if there is one.
        probes: those of the strategy and of the pruner.
        records: finished trials by number.
        is_interrupted: ended by Ctrl-C.
        is_exhausted: the strategy proposed nothing more, or nothing that the pruner kept.
        overhead_s: spent in the strategy and the pruner, s.
    """

    config: SearchConfig
    search_id: str
    run: StrategyRun
    log: TrialLog
    observers: Observers = field(default_factory=lambda: Observers(()))
    on_progress: OnProgress | None = None
    start_points: tuple[DesignPoint, ...] = ()
    judging: Judging | None = None
    probes: tuple[CountingProbe, ...] = ()
    records: list[Trial[Evaluation]] = field(default_factory=list)
    is_interrupted: bool = False
    is_exhausted: bool = False
    overhead_s: float = 0.0
    _known: dict[DesignPoint, Evaluation] = field(default_factory=dict)
    _best: Trial[Evaluation] | None = None
    _incumbents: tuple[tuple[float, ...], ...] = ()

    def run_to_end(self, evaluator: Evaluator) -> None:
        """Take every step, waiting where others evaluate what this search needs."""
        for _ in self.steps(evaluator):
            time.sleep(WAIT_S)

    def steps(self, evaluator: Evaluator) -> Iterator[None]:
        """Ask, judge, evaluate and tell to the end; yields whenever the search waits for evaluations elsewhere."""
        points: Sequence[DesignPoint] = self.start_points or self._ask()
        while points:
            outcomes: dict[int, Outcome] = {}
            yield from self._process(evaluator, points, outcomes)
            if len(outcomes) < len(points):
                return
            self._tell([outcomes[position] for position in range(len(points))])
            if self._is_over():
                return
            points = self._ask()
        self.is_exhausted = True

    def _is_over(self) -> bool:
        """Whether the budget is spent, or the pruner drops whatever the strategy proposes."""
        if len(self.records) >= self.config.num_trials or self._is_out_of_time:
            return True
        judging = self.judging
        if judging and judging.may_repeat and judging.num_in_a_row >= MAX_PRUNED_IN_A_ROW:
            self.is_exhausted = True
            return True
        return False

    @property
    def _is_out_of_time(self) -> bool:
        """Whether a budget in seconds is spent; never before the first trials."""
        limit_s = self.config.max_seconds
        return limit_s is not None and bool(self.records) and self.charged_s >= limit_s

    @property
    def charged_s(self) -> float:
        """What the search would have taken alone on one core: its evaluations and its own thinking, s."""
        return self.overhead_s + sum(record.wall_s for record in self.records)

    def _ask(self) -> tuple[DesignPoint, ...]:
        """The next proposals."""
        count = min(self.config.batch, self.config.num_trials - len(self.records))
        if self.judging is not None and self.judging.can_ask_ahead:
            count = ASK_AHEAD
        started = time.perf_counter()
        points = tuple(self.run.ask(count))[:count]
        self.overhead_s += time.perf_counter() - started
        return points

    def _tell(self, outcomes: Sequence[Outcome]) -> None:
        """Tell the strategy."""
        started = time.perf_counter()
        self.run.tell(outcomes)
        self.overhead_s += time.perf_counter() - started

    def _process(
        self, evaluator: Evaluator, points: Sequence[DesignPoint], outcomes: dict[int, Outcome]
    ) -> Iterator[None]:
        """Judge and evaluate proposals, a batch at a time; leaves out what the budget no longer covers."""
        queue = list(enumerate(points))
        judged_against: object = None
        # What is asked far ahead may take many batches, so the seconds are looked at before each.
        while queue and not self._is_out_of_time:
            # The first points of a search are always evaluated: where nothing fits, they say why.
            against = self._incumbents if self.records else None
            if judged_against is not against:
                judged_against = against
                queue = self._drop(queue, outcomes)
            room = self.config.num_trials - len(self.records)
            batch = max(self.config.batch, len(self.start_points)) if not self.records else self.config.batch
            chunk, queue = queue[: min(room, batch)], queue[min(room, batch) :]
            if chunk:
                yield from self._evaluate(evaluator, chunk, outcomes)
            elif queue:
                return

    def _drop(
        self, queue: list[tuple[int, DesignPoint]], outcomes: dict[int, Outcome]
    ) -> list[tuple[int, DesignPoint]]:
        """What the pruner keeps; the outcomes of what it drops are noted."""
        if self.judging is None:
            return queue
        verdicts = self._judge([point for _, point in queue])
        kept = []
        for position, point in queue:
            verdict = verdicts.get(point)
            if verdict is None or not verdict.is_pruned:
                kept.append((position, point))
                self.judging.num_in_a_row = 0
                continue
            self.judging.num_in_a_row += 1
            self.judging.dropped[point] = verdict.values
            outcomes[position] = Outcome(number=-1, point=point, values=verdict.values, is_pruned=True)
        return kept

    def _judge(self, points: Sequence[DesignPoint]) -> dict[DesignPoint, Verdict]:
        """Verdicts on points not evaluated yet; what was dropped once stays dropped."""
        assert self.judging is not None
        dropped = self.judging.dropped
        verdicts = {point: Verdict(is_pruned=True, values=dropped[point]) for point in points if point in dropped}
        open_points = [p for p in dict.fromkeys(points) if p not in verdicts and p not in self._known]
        if open_points:
            started = time.perf_counter()
            given = self.judging.run.judge(open_points, self._incumbents)
            self.overhead_s += time.perf_counter() - started
            verdicts |= dict(zip(open_points, given, strict=True))
        return verdicts

    def _evaluate(
        self, evaluator: Evaluator, chunk: Sequence[tuple[int, DesignPoint]], outcomes: dict[int, Outcome]
    ) -> Iterator[None]:
        """Evaluate a batch and record its trials in order; on Ctrl-C also those that others had finished."""
        points = [point for _, point in chunk]
        new = [p for p in dict.fromkeys(points) if p not in self._known and self.log.known(p) is None]
        pending = dict(zip(new, evaluator.submit(new), strict=True)) if new else {}
        while any(entry.is_waiting for entry in pending.values()):
            yield
        first = len(self.records)
        try:
            for point in points:
                self._record(point, pending)
        except KeyboardInterrupt:
            for point in points[len(self.records) - first :]:
                if point not in pending or pending[point].is_done:
                    self._record(point, pending)
            raise
        for (position, _), record in zip(chunk, self.records[first:], strict=True):
            outcomes[position] = Outcome(record.number, record.point, record.values, record.evaluation.constraints)

    def _record(self, point: DesignPoint, pending: dict[DesignPoint, PendingEvaluation]) -> None:
        """Finish one trial: log, list, observers, progress."""
        number = len(self.records)
        is_repeat = point in self._known
        if is_repeat:
            evaluation, wall_s = self._known[point], 0.0
        elif point in pending:
            evaluation, wall_s = pending[point].result()
        else:
            known = self.log.known(point)
            assert known is not None
            evaluation, wall_s = known.evaluation, known.wall_s
        record = Trial(
            number=number,
            point=point,
            values=goal_values(self.config.goal, evaluation),
            status=evaluation.status,
            wall_s=wall_s,
            is_repeat=is_repeat,
            evaluation=evaluation,
            is_resumed=self.log.has_trial(number, point),
        )
        # The log first: a Ctrl-C between these lines then costs no finished evaluation.
        self.log.append(record)
        self.records.append(record)
        self._known[point] = evaluation
        if record.values and not is_repeat:
            self._note(record)
        self._announce(record)

    def _note(self, record: Trial[Evaluation]) -> None:
        """Update the best trial and the values that pruners compare with."""
        if self._best is None or rank(record) < rank(self._best):
            self._best = record
        rows = (*self._incumbents, record.values)
        kept = front_indices(rows, goal_directions(self.config.goal))
        if len(rows) - 1 in kept:
            self._incumbents = tuple(rows[row] for row in kept)

    def _announce(self, record: Trial[Evaluation]) -> None:
        """Tell observers and the progress display of a trial."""
        self.observers.notify(TrialFinished(self.search_id, record))
        if self.on_progress is not None:
            best = None if self._best is None else self._best.evaluation.throughput_samples_per_s
            what = "nothing feasible yet" if best is None else f"best {best:,.1f} samples/s"
            self.on_progress(Progress("trials", len(self.records), self.config.num_trials, what))

    def result(self, *, wall_s: float) -> SearchResult:
        """What stands now."""
        effort = Effort.together([evaluation.effort for evaluation in self._known.values()])
        probed = frozenset().union(*(probe.architectures for probe in self.probes))
        front = self._front()
        return SearchResult(
            search_id=self.search_id,
            best=None if self._best is None else self._best.evaluation,
            best_number=-1 if self._best is None else self._best.number,
            pareto_front=front,
            evaluations=len(self.records),
            distinct_evaluations=len(self._known),
            probes=len(probed),
            ilp_solves=effort.num_ilp_solves,
            placements=effort.num_placements,
            pruned=0 if self.judging is None else len(self.judging.dropped),
            wall_s=wall_s,
            overhead_s=self.overhead_s,
            is_interrupted=self.is_interrupted,
            is_exhausted=self.is_exhausted,
            trials=tuple(self.records),
            is_pruning_safe=self.judging is None or self.judging.is_safe,
            open_gap=open_gap_of(self.config.goal, front, self.records),
        )

    def _front(self) -> tuple[Trial[Evaluation], ...]:
        """Non-dominated feasible trials, largest first objective first."""
        feasible = [record for record in self.records if record.values and not record.is_repeat]
        rows = front_indices([record.values for record in feasible], goal_directions(self.config.goal))
        return tuple(sorted((feasible[row] for row in rows), key=lambda record: -record.values[0]))
