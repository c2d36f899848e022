"""A finished study judged, as values: scores, ranks, tests, prices, and what all of them stand on."""

from collections.abc import Mapping
from dataclasses import dataclass

from phaze_opt.record.arrays import Floats
from phaze_opt.study.config import PublishedClaim
from phaze_opt.study.result import COUNTS, Truth

COSTS = ("evaluations", "distinct_evaluations", *COUNTS, "charged_s", "overhead_s")
"""What a search cost, as its result and its score name it."""


@dataclass(frozen=True, slots=True, eq=False)
class CellScore:
    """One search judged.

    Attributes:
        key, setting, workload, contender, seed: which one.
        curve: relative regret after each evaluation, shape (num_evaluations,): ``1 - best so far / truth`` (1 while
            nothing feasible was found); for several objectives ``1 - hypervolume so far / best known hypervolume``.
        regret: at the end.
        area_under_curve: mean of the curve over the whole budget (its last value repeated if it ended before).
        evaluations_to: evaluations until the regret was at most each target; targets not reached are absent.
        seconds_to: charged time until then, s; overhead is spread evenly over evaluations.
        hypervolume: dominated share of the box between the worst and the best known values; 0 for a single objective.
        evaluations, distinct_evaluations, probes, pruned, ilp_solves, placements, charged_s, overhead_s: its cost.
    """

    key: str
    setting: str
    workload: str
    contender: str
    seed: int
    curve: Floats
    regret: float
    area_under_curve: float
    evaluations_to: Mapping[float, int]
    seconds_to: Mapping[float, float]
    hypervolume: float
    evaluations: int
    distinct_evaluations: int
    probes: int
    pruned: int
    ilp_solves: int
    placements: int
    charged_s: float
    overhead_s: float


@dataclass(frozen=True, slots=True)
class ContenderScore:
    """One contender over the seeds of one condition, or over all of them.

    Attributes:
        contender: its name.
        condition: key of the condition; empty for all (workloads weighted).
        num_cells: searches.
        median_regret, mean_regret: relative, at the end; over all conditions each weighs as its workload, whatever
            its number of searches.
        low_regret, high_regret: bootstrap interval of the mean regret.
        share_reached: share of searches that reached each target.
        median_evaluations_to: evaluations by which half of the searches had reached each target; targets that fewer
            ever reached are absent.
        median_seconds_to: likewise, s.
        mean_area_under_curve: mean.
        mean_hypervolume: mean over searches of several objectives; 0 if there are none.
        mean_distinct_evaluations, mean_probes, mean_pruned, mean_charged_s: means of the cost.
        mean_rank: over conditions by median regret, 1 is best; of a single condition its rank.
    """

    contender: str
    condition: str
    num_cells: int
    median_regret: float
    mean_regret: float
    low_regret: float
    high_regret: float
    share_reached: Mapping[float, float]
    median_evaluations_to: Mapping[float, float]
    median_seconds_to: Mapping[float, float]
    mean_area_under_curve: float
    mean_hypervolume: float
    mean_distinct_evaluations: float
    mean_probes: float
    mean_pruned: float
    mean_charged_s: float
    mean_rank: float


@dataclass(frozen=True, slots=True)
class PairTest:
    """Two contenders compared.

    Attributes:
        condition: key, or empty for conditions as blocks.
        first, second: contenders; ``first`` has the lower median regret.
        test: ``Wilcoxon`` over conditions; over seeds ``Mann-Whitney``, ``sign test`` where one of the two makes the
            same search whatever the seed, ``none`` where both do.
        p_value: after Holm's correction over all tested pairs of the same condition.
        effect: Vargha-Delaney A of first over second, 0.5 is none, 1 means always better; over conditions its paired
            form, the share of conditions in which first is better.
        is_significant: ``first`` is better at the study's confidence, on the test's own side too; over conditions only
            if Friedman's test finds a difference as well.
    """

    condition: str
    first: str
    second: str
    test: str
    p_value: float
    effect: float
    is_significant: bool


@dataclass(frozen=True, slots=True)
class Ranking:
    """Contenders ranked with conditions as blocks (medians over seeds).

    Attributes:
        contenders: best mean rank first.
        mean_ranks: of each.
        friedman_p: that all are alike; 1 if it cannot be tested (`is_tested`).
        cliques: groups of contenders that no test tells apart, as index pairs (first, last) into ``contenders``.
        num_conditions: with finished searches.
        num_blocks: of them, those in which every contender has a finished search.
        num_tied: blocks in which all contenders tie.
        num_settings: of the blocks.
        smallest_p: that Wilcoxon's test can give over so many blocks, before correction.
    """

    contenders: tuple[str, ...]
    mean_ranks: tuple[float, ...]
    friedman_p: float
    cliques: tuple[tuple[int, int], ...]
    num_conditions: int
    num_blocks: int
    num_tied: int = 0
    num_settings: int = 1
    smallest_p: float = 1.0

    @property
    def num_pairs(self) -> int:
        """Pairs of contenders, over which p-values are corrected."""
        return len(self.contenders) * (len(self.contenders) - 1) // 2

    @property
    def is_tested(self) -> bool:
        """Whether Friedman's test says anything: of three contenders on."""
        return self.num_blocks > 1 and len(self.contenders) > 2


@dataclass(frozen=True, slots=True)
class Standing:
    """What the figures of one condition stand on, and what they cannot tell.

    Attributes:
        condition: its key.
        truth: what regret is against; None of several objectives, or if nothing feasible is known.
        beaten_truth: the certified or enumerated optimum, if a search did better: then it was none.
        has_front: several objectives: regret is of the hypervolume.
        num_contenders: with finished searches.
        infeasible: searches that found nothing feasible, by contender; only where others found something.
        deterministic: seeds that all gave one search, by contender.
        smallest_p: the least p-value, after correction, that tests over seeds can give.
        is_tied: all searches of several contenders end with the same regret.
        num_observations: of the contender that has fewest, among those whose regret varies over seeds; 0 without any.
    """

    condition: str
    truth: Truth | None
    beaten_truth: Truth | None
    has_front: bool
    num_contenders: int
    infeasible: Mapping[str, int]
    deterministic: Mapping[str, int]
    smallest_p: float
    is_tied: bool
    num_observations: int


@dataclass(frozen=True, slots=True)
class Lead:
    """How much more of the best value the second contender loses than the first, an interval of the mean regret.

    Attributes:
        low, high: bootstrap interval over seeds in the conditions that both have searches in; negative for less.
    """

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class EqualQuality:
    """What one contender needs to do as well as another one ends.

    Attributes:
        first, second: contenders; half of the second one's searches end with the quality that both are measured at, in
            every condition for itself.
        num_conditions: conditions that both have searches in.
        num_reached: of these, those in which half of the searches of ``first`` get there.
        ratio: evaluations of second over those of first, weighted geometric mean over conditions; 0 if ``first`` does
            not get there in all of them.
        low, high: bootstrap interval over seeds.
        first_evaluations, second_evaluations, regret: of a single condition; 0 for several.
    """

    first: str
    second: str
    num_conditions: int
    num_reached: int
    ratio: float
    low: float
    high: float
    first_evaluations: float = 0.0
    second_evaluations: float = 0.0
    regret: float = 0.0


@dataclass(frozen=True, slots=True)
class CommonDesign:
    """A common design, or a set of designs, with what each model loses by it.

    Attributes:
        mean: what it was chosen by.
        chips: indices into `ChipTable.chips`; one for a common design, k for a portfolio.
        assignment: which of ``chips`` each model uses (index into ``chips``).
        shares: each model's value over its own best.
        price: 1 - weighted mean of the shares.
        worst_price: 1 - least share.
        score: the mean itself.
    """

    mean: str
    chips: tuple[int, ...]
    assignment: tuple[int, ...]
    shares: tuple[float, ...]
    price: float
    worst_price: float
    score: float


@dataclass(frozen=True, slots=True)
class PriceOfGenerality:
    """Per-model against common designs in one setting.

    Attributes:
        setting: its name.
        models: names.
        own_best: index of each model's best chip in `ChipTable.chips`.
        matrix: ``matrix[model][design]``: share of its own best that a model reaches on the best chip of each model.
        common: best common design by each mean.
        portfolios: best set of k chips for k = 1 .. number of models, by each mean, solved exactly over the table.
    """

    setting: str
    models: tuple[str, ...]
    own_best: tuple[int, ...]
    matrix: tuple[tuple[float, ...], ...]
    common: tuple[CommonDesign, ...]
    portfolios: tuple[CommonDesign, ...]


@dataclass(frozen=True, slots=True)
class ClaimFound:
    """What a study finds of a published claim.

    Attributes:
        claim: what was published.
        here: best values of its setting over those of the other: geometric mean, workloads weighted; None without any.
        num_workloads: that have a best value in both.
        is_proved: whether all of these are.
    """

    claim: PublishedClaim
    here: float | None
    num_workloads: int
    is_proved: bool


@dataclass(frozen=True, slots=True)
class StudySummary:
    """A study judged.

    Attributes:
        standings: of every condition with a finished search of a ranked contender, in the study's order.
        cells: finished searches.
        contenders: over all conditions, best first.
        by_condition: per condition, best first.
        ranking: over conditions as blocks.
        tests: all pairs, over all conditions and per condition.
        prices: of the generality question, by setting; empty if it was not asked.
        lead: of the best contender over the next; None if they share no condition.
        equal_quality: the best contender against the next ones.
        claims: what others published, in the study's order.
    """

    standings: tuple[Standing, ...]
    cells: tuple[CellScore, ...]
    contenders: tuple[ContenderScore, ...]
    by_condition: tuple[ContenderScore, ...]
    ranking: Ranking
    tests: tuple[PairTest, ...]
    prices: tuple[PriceOfGenerality, ...] = ()
    lead: Lead | None = None
    equal_quality: tuple[EqualQuality, ...] = ()
    claims: tuple[ClaimFound, ...] = ()

    @property
    def truths(self) -> Mapping[str, Truth]:
        """What regret is against, by key of the condition (the best known where nothing better is had)."""
        return {one.condition: one.truth for one in self.standings if one.truth is not None}
