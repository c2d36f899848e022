"""The options of a scenario and of a space, each declared once: a field with its default, help, flag, kind and limits.

All that reads or lists these options derives from the fields, in the order they stand here:

- the command line: `cli.options` makes a typer option of every field (``flag``, ``help``, ``panel``, ``shown``);
- study files: every option with a ``table`` is a key (``key``) of that table and of ``[[setting]]``, held to its kind
  and, of words, to the enumeration that has them (``words()``); `study.config.Setting` is a `ScenarioOptions` with a
  name, a goal, a space and assumptions. ``is_required`` says that a command line has to state it;
- `objective.scenario.build_scenario` and `build_space` make a `Scenario` and a `SearchSpace` of the values.

To add an option: add a field here, and one of the same name with its meaning to `Scenario`. `build_scenario` passes it
on; what is to be derived from it is stated there. Nothing heavy is imported here, so that
``--help`` stays quick.
"""

from dataclasses import dataclass, field, fields, replace
from enum import Enum, StrEnum
from functools import partial
from pkgutil import resolve_name
from typing import Any

from phaze_opt.workload.run_options import RUN_OPTIONS

WORKLOAD = "Workload and cluster"
CHOICES = "Training and scheduling choices"
PLAN = "Parallel plan (what is not given is free, what is listed is searched)"
BUDGETS = "Silicon and budgets"
SPACE = "Space"

MAX_COUNT = 10**9
"""Largest count an option takes unless it says otherwise; products of such counts stay within 64 bits."""
MAX_MICRO_BATCH = 1 << 16
MAX_DEGREE = 1 << 20
"""Largest degree of parallelism that a plan may be given."""
MAX_HBM_GB = 1 << 20
PLANNED_MICRO_BATCHES = tuple(range(1, 17))
"""Of full plans, as `workload.plan.FREE_MICRO_BATCH`."""
USUAL_MICRO_BATCHES, USUAL_HBM_GB = (1, 2, 4, 8), (32, 64, 80)
"""The default values of the axes of `hardware.chip_template`, which takes numpy to import."""
EXAMPLE = "num_tc=4, num_vc=8, tc_width=128, tc_depth=128, glb_mb=64, hbm_gb=32"
"""A design as ``--arch`` takes it."""
_DECLARATION = "declaration"
NETWORKS = "phaze_opt.hardware.networks:list_networks"
SOFTWARE = "phaze_opt.cost.stacks:list_stacks"
MODELS = "phaze_opt.workload.zoo:list_models"
MACHINES = "phaze_opt.hardware.presets:list_architectures"
"""What lists the values of options, for completion."""


class Kind(Enum):
    """What the text of an option is read as.

    COUNT is an integer within limits, COUNTS are several of them (ascending, distinct; none where nothing was said),
    AMOUNT a positive number (1.5T is 1.5e12; K, M, B likewise), GAP a number from 0 to below 1, WORD one of a closed
    set or of the plug-ins' names, TEXT and PATH what they say, TEXTS several texts, SWITCH yes or no.
    """

    COUNT = "count"
    COUNTS = "counts"
    AMOUNT = "amount"
    GAP = "gap"
    WORD = "word"
    TEXT = "text"
    TEXTS = "texts"
    PATH = "path"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Declaration:
    """All that is known of one option.

    Attributes:
        help: one line on what it does.
        kind: how its text is read.
        panel: heading of the command line's help.
        flag: on the command line; that of a switch that is on by default comes with its ``--no-`` form.
        alias: what the field calls it in short, such as ``tp``; a flag and a keyword too.
        values: ``module:function`` that lists what it may be, or a group of plug-ins, for completion.
        shown: the default in words, where the value does not tell; empty for the value itself.
        low, high: limits of a count.
        enumeration: ``module:name`` of the closed set that holds a word; empty if there is none.
        is_required: whether a command line must state it.
        table: of a study file; empty if study files do not have it.
        key: in a study file; the field's name unless given.
        name: of the field; filled in by `declarations`.
        default: of the field; filled in by `declarations`.
    """

    help: str
    kind: Kind
    panel: str = ""
    flag: str = ""
    alias: str = ""
    values: str = ""
    shown: str = ""
    low: int = 1
    high: int = MAX_COUNT
    enumeration: str = ""
    is_required: bool = False
    table: str = ""
    key: str = ""
    name: str = ""
    default: Any = None

    def words(self) -> type[StrEnum]:
        """The closed set of a word; imports the module that defines it."""
        found: type[StrEnum] = resolve_name(self.enumeration)
        return found


def declared(default: Any, help: str, kind: Kind, **more: Any) -> Any:  # noqa: A002
    """A field of a frozen dataclass of options; ``more`` are attributes of `Declaration`."""
    return field(default=default, metadata={_DECLARATION: Declaration(help, kind, **more)})


def same(options: type, name: str, **changes: Any) -> Any:
    """A field as another dataclass of options declares it, but for some attributes of its `Declaration`."""
    known = replace(declarations(options)[name], **changes)
    return field(default=known.default, metadata={_DECLARATION: known})


def declarations(options: type) -> dict[str, Declaration]:
    """The declarations of a dataclass of options by field, in order, with names, defaults, flags and keys filled in."""
    found = {}
    for each in fields(options):
        known: Declaration = each.metadata[_DECLARATION]
        flag = known.flag or f"--{each.name.replace('_', '-')}"
        found[each.name] = replace(known, name=each.name, default=each.default, flag=flag, key=known.key or each.name)
    return found


def _listed(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))


_of_workload = partial(declared, panel=WORKLOAD, table="cluster")
_of_choices = partial(declared, panel=CHOICES, table="training")
_of_plan = partial(declared, panel=PLAN, table="training")
_degrees = partial(_of_plan, (), kind=Kind.COUNTS, high=MAX_DEGREE)


def of_run(column: str, **more: Any) -> Any:
    """An option of runs of training software, as `workload.run_options` has it."""
    known = RUN_OPTIONS[column]
    return declared(
        None, known.help, Kind.WORD, panel=PLAN, enumeration=known.enumeration, shown="the software's", **more
    )


_of_budgets = partial(declared, panel=BUDGETS, table="budgets")
_of_space = partial(declared, panel=SPACE, table="space")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioOptions:
    """What a user says of a scenario beside its models; `objective.scenario.Scenario` has the meanings."""

    devices: int = _of_workload(1024, "Accelerators in the cluster.", Kind.COUNT, is_required=True)
    global_batch: int = _of_workload(
        4096, "Samples an iteration, over all replicas.", Kind.COUNT, is_required=True, alias="gbs"
    )
    sequence_length: int | None = _of_workload(
        None,
        "Tokens a sample; by default the model's own maximum, at most 4096.",
        Kind.COUNT,
        table="training",
        alias="seq",
    )
    network: str = _of_workload(
        "two-level", "A network by name (see `phaze-opt network list`), or a file.", Kind.TEXT, values=NETWORKS
    )
    optimizer: str = _of_choices("adam", "adam or sgd.", Kind.WORD, enumeration="phaze_opt.workload.training:Optimizer")
    attention: str = _of_choices(
        "fused", "fused or unfused.", Kind.WORD, enumeration="phaze_opt.workload.training:AttentionForm"
    )
    sparsity: str = _of_choices(
        "",
        "N:M sparse weights of the blocks, such as 2:4 or 1:16,recipe=stepwise,dense=0.1,fine_tune=0.2; recipes are "
        "sr-ste, mask-decay, stepwise and geometric; transposable=yes makes input gradients sparse too.",
        Kind.TEXT,
        shown="dense",
    )
    exclusivity: str = _of_choices(
        "chip",
        "What an operator spread over all cores excludes: chip (everything) or type (its core types).",
        Kind.WORD,
        enumeration="phaze_opt.schedule.problem:Exclusivity",
    )
    estimator: str | None = _of_choices(
        None,
        "What prices operators: calibrated (with the shares of peak fitted to real machines), analytic (ideal arrays, "
        "lanes and memory: a limit), or a plug-in's.",
        Kind.WORD,
        shown="calibrated",
        values="phaze_opt.estimators",
    )
    schedule_gap: float = _of_choices(
        0.01,
        "Solve a schedule's ILP only above this relative gap; 0 proves every schedule, however long it takes.",
        Kind.GAP,
    )
    published_form: str | None = _of_choices(
        None,
        "phaze: Phaze's placements, analytic estimator and ideal software, the micro-batch an axis of the space.",
        Kind.WORD,
        flag="--as",
        key="as",
        enumeration="phaze_opt.objective.scenario:PublishedForm",
    )
    plans: str | None = _of_plan(
        None,
        "full (every parallel plan that training software runs) or phaze (Phaze's placements: tensor, pipeline and "
        "data parallelism under ideal software).",
        kind=Kind.WORD,
        enumeration="phaze_opt.objective.scenario:PlanSpace",
        shown="full",
    )
    software: str | None = _of_plan(
        None,
        "Training software whose fitted constants and overlaps plans have (see `phaze-opt software`).",
        kind=Kind.TEXT,
        values=SOFTWARE,
        shown="the one measured on the machine, else megatron-core (GPUs) or maxtext (systolic machines, designs)",
    )
    compile: str | None = of_run("compile", table="training")
    async_tp: str | None = of_run("async_tp", table="training")
    prefetch: str | None = of_run("prefetch", table="training")
    selective: str | None = of_run("selective", table="training")
    tensor_parallel: tuple[int, ...] = _of_plan(
        (1, 2, 4, 8), "Tensor-parallel degrees.", kind=Kind.COUNTS, high=MAX_DEGREE, alias="tp"
    )
    pipeline: tuple[int, ...] = _degrees(help="Pipeline stages.", alias="pp")
    data: tuple[int, ...] = _degrees(help="Replicas (data-parallel degree).", shown="the devices left", alias="dp")
    context_parallel: tuple[int, ...] = _degrees(help="Shards of the sequence in attention.", shown="1", alias="cp")
    expert_parallel: tuple[int, ...] = _degrees(help="Devices of a stage that experts are spread over.", alias="ep")
    expert_tensor_parallel: tuple[int, ...] = _degrees(
        alias="etp",
        help="Devices of a tensor group that split each expert; fewer than all fold experts over it.",
        shown="all, and 1 where experts span the group",
    )
    interleave: tuple[int, ...] = _degrees(help="Model chunks a stage (1F1B is 1).")
    zero: tuple[int, ...] = _of_plan(
        (),
        "ZeRO stages: 0 shards nothing, 1 optimizer state, 2 gradients too, 3 parameters too (FSDP).",
        kind=Kind.COUNTS,
        low=0,
        high=3,
    )
    state_shards: tuple[int, ...] = _degrees(help="Replicas that ZeRO shards over (hybrid sharding).", shown="all")
    gradient_bits: str | None = _of_plan(
        None,
        "16 or 32: width of gradients, as held and as sent.",
        kind=Kind.WORD,
        enumeration="phaze_opt.objective.scenario:GradientBits",
        shown="the software's",
    )
    recompute: str = _of_plan(
        "auto",
        "auto (per stage, where needed), never or none, selective (see --selective), always or full.",
        kind=Kind.WORD,
        enumeration="phaze_opt.objective.plan_options:RecomputeChoice",
    )
    cuts: str | None = _of_plan(
        None,
        "Where pipelines are cut: units (between a model's equal units), layers (between any two, where little of a "
        "model repeats) or branches (on machines that exist: between sets of blocks, where some run beside others).",
        kind=Kind.WORD,
        enumeration="phaze_opt.workload.chain:CutPlaces",
        shown="layers on machines that exist, units of designs",
    )
    layer_fusion: str | None = _of_plan(
        None,
        "Run layers of a stage in groups whose border tensors stay on the chip: exact (the best groups), genetic, "
        "learned, or a plug-in's.",
        kind=Kind.WORD,
        shown="every layer alone",
        values="phaze_opt.fusers",
    )
    stage_blocks: str = _of_plan(
        "",
        "Blocks of each pipeline stage, first stage first, such as 7,8x14,7 (eight stages of 14).",
        kind=Kind.TEXT,
        shown="free",
    )
    stage_recompute: str = _of_plan(
        "",
        "What each stage of --stage-blocks recomputes, such as full,9xnone.",
        kind=Kind.TEXT,
        shown="as --recompute says",
    )
    is_sequence_parallel: bool = _of_plan(
        True,
        "Shard norms and residuals over the tensor group too.",
        kind=Kind.SWITCH,
        flag="--sequence-parallel",
        key="sequence_parallel",
    )
    silicon: str | None = _of_budgets(
        None,
        "What chips are built of: die (a whole die that could be built) or phaze (the original's tables at 22 nm).",
        Kind.WORD,
        enumeration="phaze_opt.objective.silicon_options:SiliconForm",
        shown="die; phaze with --as phaze or --space phaze",
    )
    process_nm: int = _of_budgets(7, "Process of dies: 28, 16, 14, 12, 10, 8, 7, 6, 5, 4 or 3 nm.", Kind.COUNT, high=28)
    hbm_generation: str | None = _of_budgets(
        None,
        "HBM of dies: hbm2, hbm2e, hbm3, hbm3e or hbm4.",
        Kind.WORD,
        enumeration="phaze_opt.hardware.silicon.die_constants:HbmGeneration",
        shown="that of the process: hbm2e at 7 nm",
    )
    max_area_mm2: float | None = _of_budgets(None, "Area budget of a chip, mm2.", Kind.AMOUNT)
    max_tdp_w: float | None = _of_budgets(None, "TDP budget of a chip, W.", Kind.AMOUNT)
    max_capex_usd: float | None = _of_budgets(None, "What the whole cluster may cost, USD.", Kind.AMOUNT)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceOptions:
    """What a user says of a space: nothing means Phaze's, with the defaults above joined."""

    micro_batch: tuple[int, ...] = _of_space(
        (),
        "Micro-batches to search, samples: of the plans, or of Phaze's placements an axis of the space.",
        Kind.COUNTS,
        alias="mbs",
        high=MAX_MICRO_BATCH,
        shown=f"what divides a replica's samples, up to {PLANNED_MICRO_BATCHES[-1]}, "
        f"as phaze {_listed(USUAL_MICRO_BATCHES)}; or those of --space",
    )
    hbm_gb: tuple[int, ...] = _of_space(
        (),
        "HBM capacities to search, GB.",
        Kind.COUNTS,
        flag="--hbm",
        high=MAX_HBM_GB,
        shown=f"{_listed(USUAL_HBM_GB)}, or those of --space",
    )
    space: str = _of_space(
        "",
        "phaze or die, or a space of your own (TOML).",
        Kind.TEXT,
        flag="--space",
        shown="die, or with --silicon phaze or --as phaze phaze",
    )
