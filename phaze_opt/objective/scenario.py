"""A scenario: everything about an evaluation except the design itself."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from phaze_opt.cost.stacks import DESIGN_SOFTWARE, find_software, list_stacks, load_stack, software_options
from phaze_opt.errors import InputError
from phaze_opt.estimate.protocol import FittedEstimator
from phaze_opt.graph.any_model import AnyModel, load_any_model
from phaze_opt.graph.sharding import sharding_obstacle
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.hardware.network import Cluster, Network
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.silicon.silicon import Silicon, with_die
from phaze_opt.objective.plan_options import (
    RECOMPUTES,
    RUN_OPTIONS_OF_PLANS,
    RecomputeChoice,
    check_can_fuse,
    check_fuser,
    cut_places,
    plan_choices,
    run_tables,
)
from phaze_opt.objective.scenario_options import Declaration, Kind, ScenarioOptions, SpaceOptions, declarations
from phaze_opt.objective.silicon_options import SiliconForm, chosen_silicon
from phaze_opt.placement.problem import RecomputePolicy
from phaze_opt.plugins import PluginGroup, check_installed, load_plugin, plugin_code, unnamed_code
from phaze_opt.record.plain_data import field_values
from phaze_opt.record.suggestions import parse_word, suggest
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.space.known_spaces import die_space, load_space, phaze_space, read_space_file
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import gib_to_bytes
from phaze_opt.workload.chain import CutPlaces
from phaze_opt.workload.plan import PlanChoices, Recompute
from phaze_opt.workload.software import IDEAL_STACK, TrainingStack
from phaze_opt.workload.sparsity import SparseWeights, only_weights
from phaze_opt.workload.training import MAX_SAMPLES, AttentionForm, Optimizer, TrainingSpec
from phaze_opt.workload.workload import Workload, sequence_length_of

LIMITED_NODES = 200
"""Branch-and-bound nodes of each schedule's ILP wherever a gap is accepted; proving a schedule takes what it takes."""
NO_NODE_LIMIT = 0
DEFAULTS = ScenarioOptions()
IDEAL_ESTIMATOR, DEFAULT_ESTIMATOR = "analytic", "calibrated"
"""The estimators that come with the package. The ideal one has no constants beside the package's."""
OWN_ESTIMATORS = (IDEAL_ESTIMATOR, DEFAULT_ESTIMATOR)


_DERIVED = frozenset({"estimator", "layer_fusion", "plans", "recompute", "silicon", "sparsity"})
"""Fields of a scenario that do not hold what the option of the same name states, but what follows from it."""


class PlanSpace(StrEnum):
    """Which parallel plans designs may have: every plan that training software runs, or Phaze's placements."""

    FULL = "full"
    PHAZE = "phaze"


class PublishedForm(StrEnum):
    """Whose published form an answer has: its plans, estimator, software and axes of the space."""

    PHAZE = "phaze"


class GradientBits(StrEnum):
    """Widths of a gradient."""

    BITS_16 = "16"
    BITS_32 = "32"


class CommonMean(StrEnum):
    """How one design's throughputs on several models become one figure.

    ARITHMETIC is Phaze's; GEOMETRIC weighs ratios; WORST is the lowest rate of model FLOPs that any model reaches,
    turned back into samples/s by the geometric mean of the models' samples per FLOP.
    """

    ARITHMETIC = "arithmetic"
    GEOMETRIC = "geometric"
    WORST = "worst"


@dataclass(frozen=True, slots=True)
class Scenario:
    """Workload, cluster, training choices and budgets; a design point completes it to an evaluation.

    A record: what is not given is of Phaze's published form. `make_scenario` has the defaults of
    the command line.

    Attributes:
        models: one, or several for a common design.
        cluster: devices and network.
        global_batch: samples an iteration, over all replicas.
        sequence_length: tokens; None means each model's own.
        optimizer, attention, exclusivity, recompute, is_sequence_parallel: training and scheduling choices.
        tensor_parallel: degrees that placement may choose from; those a model cannot be sharded by are left out.
        common: the mean over models.
        max_area_mm2, max_tdp_w: budgets; None is no budget beyond the space's own.
        estimator: name of the estimator plug-in.
        schedule_gap: relative gap of a block of operators up to which its ILP is not solved; bounds and searches in
            compiled code still aim at closing it, and what remains is stated.
        schedule_nodes: branch-and-bound nodes that each such ILP may take. A number of nodes, not of seconds, so that
            the same scenario gives the same evaluation on every machine; 0 is no limit.
        plans: what the parallel plans of designs may be: every degree, ZeRO stage and recomputation of `cost`; None for
            Phaze's placements (`placement`): tensor, pipeline and data parallelism under ideal software.
        stack: training software of plans; its attention takes the place of ``attention``.
        silicon: what dies are built of; None for the tables at 22 nm.
        max_capex_usd: budget of the whole cluster; None is no budget.
        prices: those other than the package's, by key, where a goal or a budget is of money; None where none is.
        sparsity: N:M pattern of the weights of a model's units; None trains them dense.
        layer_fusion: name of the fuser plug-in that puts the layers of stages into groups; empty for none.
    """

    models: tuple[AnyModel, ...]
    cluster: Cluster
    global_batch: int
    sequence_length: int | None = None
    optimizer: Optimizer = Optimizer(DEFAULTS.optimizer)
    attention: AttentionForm = AttentionForm(DEFAULTS.attention)
    exclusivity: Exclusivity = Exclusivity(DEFAULTS.exclusivity)
    recompute: RecomputePolicy = RecomputePolicy.AUTO
    is_sequence_parallel: bool = DEFAULTS.is_sequence_parallel
    tensor_parallel: tuple[int, ...] = DEFAULTS.tensor_parallel
    common: CommonMean = CommonMean.ARITHMETIC
    max_area_mm2: float | None = None
    max_tdp_w: float | None = None
    estimator: str = IDEAL_ESTIMATOR
    schedule_gap: float = DEFAULTS.schedule_gap
    schedule_nodes: int = LIMITED_NODES
    plans: PlanChoices | None = None
    stack: TrainingStack = IDEAL_STACK
    silicon: Silicon | None = None
    max_capex_usd: float | None = None
    prices: tuple[tuple[str, float], ...] | None = None
    sparsity: SparseWeights | None = None
    layer_fusion: str = ""

    def __post_init__(self) -> None:
        """Check that there is something to train and somewhere to train it."""
        if not self.models:
            message = "no model is given; name at least one"
            raise InputError(message, key="models")
        if not 1 <= self.global_batch <= MAX_SAMPLES:
            message = f"{self.global_batch} must be a positive integer up to {MAX_SAMPLES}"
            raise InputError(message, key="global_batch")
        if self.sequence_length is not None and self.sequence_length < 1:
            message = f"{self.sequence_length} must be a positive integer"
            raise InputError(message, key="sequence_length")
        if not 0 <= self.schedule_gap < 1:
            message = f"{self.schedule_gap} must be at least 0 and below 1"
            raise InputError(message, key="schedule_gap")
        if self.schedule_nodes < 0:
            message = f"{self.schedule_nodes} must not be negative"
            raise InputError(message, key="schedule_nodes")
        if not self.tensor_parallel or min(self.tensor_parallel) < 1:
            message = f"{self.tensor_parallel} must be positive integers, at least one"
            raise InputError(message, key="tensor_parallel")
        if self.max_capex_usd is not None and self.silicon is None:
            message = "needs whole dies, and the 22 nm tables count a part of them; leave it out, or leave out --as"
            raise InputError(message, source="--max-capex-usd")
        for group, key in ((PluginGroup.ESTIMATORS, "estimator"), (PluginGroup.FUSERS, "layer_fusion")):
            if fault := unnamed_code(group, getattr(self, key)):
                raise InputError(fault, key=key)
        check_can_fuse(self.layer_fusion, is_planned=self.plans is not None, has_die=self.silicon is not None)
        for model in self.models:
            self.sequence_length_of(model)
            self.tensor_degrees_of(model)

    def without_budgets(self) -> "Scenario":
        """The same for chips of any size, power and cost."""
        return replace(self, max_area_mm2=None, max_tdp_w=None, max_capex_usd=None)

    @property
    def of_graphs(self) -> "Scenario":
        """What graphs, plans and dual vectors follow from: no budget, price, silicon or group of layers changes any."""
        return replace(self.without_budgets(), silicon=None, prices=None, layer_fusion="")

    def sequence_length_of(self, model: Workload) -> int:
        """Tokens a sample of one model.

        Raises:
            InputError: the model cannot be run on the length asked for.
        """
        return sequence_length_of(model, self.sequence_length)

    def tensor_degrees_of(self, model: Workload) -> tuple[int, ...]:
        """Degrees that the cluster holds and the model can be sharded by.

        Raises:
            InputError: none of the degrees works; the message says what hinders the first.
        """
        fitting = [degree for degree in sorted(set(self.tensor_parallel)) if degree <= self.cluster.num_devices]
        degrees = tuple(degree for degree in fitting if sharding_obstacle(model, degree) is None)
        if not degrees:
            obstacle = sharding_obstacle(model, fitting[0]) if fitting else "every degree exceeds the devices given"
            message = f"none of {self.tensor_parallel} works for {model.name}: {obstacle}"
            raise InputError(message, key="tensor_parallel")
        return degrees

    def training_of(self, model: Workload, micro_batch: int) -> TrainingSpec:
        """The training set-up of one model at one micro-batch."""
        return TrainingSpec(
            micro_batch=micro_batch,
            sequence_length=self.sequence_length_of(model),
            global_batch=self.global_batch,
            optimizer=self.optimizer,
            attention=self.attention,
            is_sequence_parallel=self.is_sequence_parallel,
            sparsity=self.sparsity,
        )

    def constants_of(self, known: Constants | None = None) -> Constants:
        """Constants with the scenario's silicon; ``known`` are the package's own unless given."""
        constants = load_constants() if known is None else known
        return constants if self.silicon is None else with_die(constants, self.silicon)

    @property
    def digest(self) -> str:
        """SHA-256 of the resolved scenario and the package's constants; equal on every machine for equal scenarios.

        Constants that the estimator was fitted with count too.

        Raises:
            PluginError: the estimator is unknown or fails to load.
        """
        parts = [field_values(self), self.constants_of().digest, *_fitted_digests(self.estimator)]
        canonical = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(canonical.encode()).hexdigest()


def _fitted_digests(estimator: str) -> tuple[str, ...]:
    """Digest of the fitted constants of an estimator; none if it has none."""
    if estimator == IDEAL_ESTIMATOR:
        return ()
    plugin = load_plugin(PluginGroup.ESTIMATORS, estimator)
    with plugin_code(PluginGroup.ESTIMATORS, estimator):
        return (plugin.fitted_digest,) if isinstance(plugin, FittedEstimator) else ()


def build_scenario(
    options: ScenarioOptions,
    models: tuple[AnyModel, ...],
    *,
    network: Network,
    common: CommonMean,
    micro_batches: tuple[int, ...] = (),
    space: str = "",
) -> Scenario:
    """The scenario that options describe.

    Args:
        options: as given on the command line or in a study file.
        models: what is trained.
        network: the one that the options name, built for their devices.
        common: the mean over models.
        micro_batches: of full plans; all usual ones unless given. Those of Phaze's placements are the space's.
        space: name or file of the space that goes with it, if any (`silicon_form`).

    Raises:
        InputError: an option breaks a rule; the message names it.
    """
    form = form_of(options)
    has_plans = form.plans is PlanSpace.FULL
    if cut_places(options, is_design=True) is CutPlaces.LAYERS:
        models = tuple(model.cut_by_layers() for model in models)
    return Scenario(
        models=models,
        cluster=Cluster(num_devices=options.devices, network=network),
        recompute=RecomputePolicy.AUTO if has_plans else _placed_recompute(options),
        common=common,
        estimator=form.estimator,
        schedule_nodes=node_limit(options.schedule_gap),
        plans=plan_choices(options, micro_batches, models) if has_plans else None,
        stack=named_stack(options, options.software or DESIGN_SOFTWARE, fitted=load_fitted())
        if has_plans
        else IDEAL_STACK,
        silicon=chosen_silicon(options, network, space=space),
        sparsity=only_weights(options.sparsity),
        layer_fusion=check_fuser(options.layer_fusion),
        **_stated(options),
    )


def _stated(options: ScenarioOptions) -> dict[str, Any]:
    """What a scenario holds as the options of the same names state it; words as members of their closed sets."""
    own = {each.name for each in fields(Scenario)} - _DERIVED
    stated = {}
    for name, known in declarations(ScenarioOptions).items():
        if name in own:
            value = getattr(options, name)
            stated[name] = parse_word(known.words(), value, source=known.flag) if known.enumeration else value
    return stated


def node_limit(schedule_gap: float) -> int:
    """Branch-and-bound nodes that each schedule's ILP may take where a gap is accepted."""
    return LIMITED_NODES if schedule_gap > 0 else NO_NODE_LIMIT


@dataclass(frozen=True, slots=True)
class Form:
    """What the words of options leave open: which plans, and what prices operators."""

    plans: PlanSpace
    estimator: str


def form_of(options: ScenarioOptions) -> Form:
    """Plans and estimator as named, else those of the published form where it is asked for, else the package's own.

    Raises:
        InputError: a word is unknown, or one option rules another out.
    """
    own, is_published = Form(PlanSpace.FULL, DEFAULT_ESTIMATOR), False
    if options.published_form is not None:
        parse_word(PublishedForm, options.published_form, source="--as")
        own, is_published = Form(PlanSpace.PHAZE, IDEAL_ESTIMATOR), True
    plans = own.plans if options.plans is None else parse_word(PlanSpace, options.plans, source="--plans")
    estimator = own.estimator
    if options.estimator is not None:
        estimator = check_installed(PluginGroup.ESTIMATORS, options.estimator, "--estimator")
    if is_published and Form(plans, estimator) != own:
        flag, value = ("--plans", plans) if plans is not own.plans else ("--estimator", estimator)
        message = f"'{value}' is not the published form's; leave it out, or leave out --as"
        raise InputError(message, source=flag)
    if plans is PlanSpace.PHAZE:
        _refuse_plan_options(options, asked_by="--as" if is_published else "--plans")
    return Form(plans, estimator)


OF_DEGREES = (
    "pipeline", "data", "context_parallel", "expert_parallel", "expert_tensor_parallel", "interleave", "zero",
    "state_shards", "stage_blocks", "stage_recompute",
)  # fmt: skip
"""Options of the degrees and the stages of full plans."""


OF_FULL_PLANS = ("software", *RUN_OPTIONS_OF_PLANS, *OF_DEGREES, "cuts", "gradient_bits", "layer_fusion")
"""Options that Phaze's placements, which lose and overlap nothing, do not have."""


def _refuse_plan_options(options: ScenarioOptions, *, asked_by: str) -> None:
    known = declarations(ScenarioOptions)
    for name in OF_FULL_PLANS:
        if getattr(options, name) != known[name].default:
            message = f"is of full plans, which {asked_by} phaze rules out; leave one of them out"
            raise InputError(message, source=known[name].flag)


def package_stack(stack: TrainingStack) -> TrainingStack | None:
    """The package's software of a stack's name, run with the stack's options; None where it has none of the name."""
    return load_stack(stack.name, load_fitted(), stack.options) if stack.name in list_stacks() else None


def named_stack(
    options: ScenarioOptions,
    name: str,
    *,
    fitted: FittedConstants,
    dtype: str = "",
    float8: str | None = None,
    is_known: bool = True,
) -> TrainingStack:
    """A software by name, run as the options say; only the ideal one takes their attention form.

    Args:
        options: of the scenario.
        name: of the software.
        fitted: constants.
        dtype: of its matmuls, which some software keeps gradients by; empty where nothing is said.
        float8: recipe of 8-bit matmuls; the software's own unless given.
        is_known: whether this is the software that runs; one that stands for another is not asked what it can do.

    Raises:
        InputError: no software goes by the name, or it has another attention form than the one asked for, or gradients
            are of another width than 16 or 32 bits, or it cannot run as asked.
    """
    known = find_software(name, fitted)
    if not known:
        message = f"no training software is named '{name[:60]}'; {suggest(name, list_stacks())}"
        raise InputError(message, source="--software")
    name = known
    said = [dtype] if dtype in software_options(name) else []
    stack = load_stack(name, fitted, [*said, *run_tables(options, float8, software=name if is_known else "")])
    attention = parse_word(AttentionForm, options.attention, source="--attention")
    if name == IDEAL_STACK.name:
        stack = replace(stack, attention=attention)
    elif options.attention not in (DEFAULTS.attention, stack.attention.value):
        message = (
            f"is for ideal software; {name} has {stack.attention.value} attention; leave it out or give "
            "--software ideal"
        )
        raise InputError(message, source="--attention")
    if options.gradient_bits is None:
        return stack
    bits = parse_word(GradientBits, options.gradient_bits, source="--gradient-bits")
    return replace(stack, gradient_bytes=int(bits) // 8)


def _placed_recompute(options: ScenarioOptions) -> RecomputePolicy:
    """What Phaze's placements recompute, whose stages recompute all or nothing."""
    word = parse_word(RecomputeChoice, options.recompute, source="--recompute")
    kinds = RECOMPUTES[word]
    if len(kinds) > 1:
        return RecomputePolicy.AUTO
    if kinds == (Recompute.SELECTIVE,):
        message = "'selective' is of full plans; placements recompute whole layers: give auto, never or always"
        raise InputError(message, source="--recompute")
    return RecomputePolicy.NEVER if kinds == (Recompute.NONE,) else RecomputePolicy.ALWAYS


def _given(known: Declaration, value: Any) -> Any:
    """A value from Python as options have it: counts ascending and within limits, words as text."""
    if known.kind is Kind.WORD and value is not None:
        return str(value)
    if known.kind is not Kind.COUNTS:
        return value
    counts = tuple(sorted({value} if isinstance(value, int) else set(value)))
    if not all(isinstance(count, int) and known.low <= count <= known.high for count in counts):
        message = f"{list(counts)} must be integers from {known.low} to {known.high:,}"
        raise InputError(message, key=known.name)
    return counts


def make_scenario(models: str | Sequence[str], *, common: str = "arithmetic", **options: Any) -> Scenario:
    """The scenario of a job, with the options and the defaults of ``phaze-opt search``.

    Args:
        models: names of the zoo or paths of config.json or traced-model files, one or several for a common design.
        common: the mean over models: arithmetic, geometric or worst.
        options: fields of `ScenarioOptions` (``devices``, ``global_batch``, ``pipeline``, ...), and ``micro_batch``.

    Raises:
        InputError: an option breaks a rule, or a model or network is unknown.
        TypeError: there is no option of the name.
    """
    known = declarations(ScenarioOptions) | {"micro_batch": declarations(SpaceOptions)["micro_batch"]}
    read = {name: _given(known[name], value) if name in known else value for name, value in options.items()}
    batches = read.pop("micro_batch", ())
    given = ScenarioOptions(**read)
    if batches and form_of(given).plans is PlanSpace.PHAZE:
        message = "is the chip's beside Phaze's placements; give it to `evaluate_accelerator`"
        raise InputError(message, key="micro_batch")
    return build_scenario(
        given,
        tuple(map(load_any_model, [models] if isinstance(models, str) else models)),
        network=load_network(given.network, num_devices=given.devices),
        common=parse_word(CommonMean, common, source="common"),
        micro_batches=batches,
    )


def build_space(
    options: SpaceOptions, plans: PlanSpace = PlanSpace.FULL, *, silicon: Silicon | None = None
) -> SearchSpace:
    """The space that is named, or that of a TOML file, of dies or by the tables at 22 nm.

    Of full plans the micro-batch is a degree of each plan (`planned_micro_batches`), and no axis of the space.

    Raises:
        InputError: a value breaks a rule, or the file is faulty.
    """
    batches = (PLANNED,) if plans is PlanSpace.FULL else options.micro_batch
    capacities = tuple(gib_to_bytes(size) for size in options.hbm_gb)
    name = options.space or (SiliconForm.PHAZE if silicon is None else SiliconForm.DIE)
    if name == SiliconForm.PHAZE:
        return phaze_space(hbm_bytes=capacities, micro_batches=batches, silicon=silicon)
    if name == SiliconForm.DIE:
        if silicon is None:
            message = "'die' is of dies; leave out --silicon phaze or --as phaze"
            raise InputError(message, source="--space")
        return die_space(silicon, hbm_bytes=capacities, micro_batches=batches)
    return load_space(Path(options.space), hbm_bytes=capacities, micro_batches=batches, silicon=silicon)


PLANNED = 1
"""The micro-batch of points whose plans have micro-batches of their own."""


def planned_micro_batches(options: SpaceOptions) -> tuple[int, ...]:
    """Micro-batches of full plans that a user names, for a space or in its file; none if nothing is said.

    Raises:
        InputError: the file is faulty.
    """
    is_file = options.space not in ("", *SiliconForm)
    stated = read_space_file(Path(options.space)).axes["micro_batch"] if is_file else ()
    return options.micro_batch or stated
