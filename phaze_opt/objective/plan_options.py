"""What the options of a scenario say of full plans: the choices they leave, stages that a user states, and faults.

A fault names its option by the flag of the command line; study files put their key in its place.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from types import MappingProxyType

from phaze_opt.cost.stacks import no_option
from phaze_opt.errors import InputError, RefusedPlanError
from phaze_opt.objective.scenario_options import ScenarioOptions
from phaze_opt.plan.plan_space import NoPlan
from phaze_opt.plugins import PluginGroup, check_installed
from phaze_opt.record.suggestions import parse_word
from phaze_opt.workload.chain import CutPlaces
from phaze_opt.workload.plan import PlanChoices, Recompute, free_micro_batches
from phaze_opt.workload.run_options import FLOAT8, RUN_OPTIONS, SELECTIVE
from phaze_opt.workload.workload import Workload

FREE_ZERO = (0, 1, 2, 3)
MAX_STAGES = 10_000
"""Stages that a text may name: far more than any model has blocks."""
_RUN = re.compile(r"\s*(?:(?P<count>[0-9]{1,6})\s*x\s*)?(?P<word>[a-z0-9]{1,20})\s*")
_BLOCKS = re.compile(r"[0-9]{1,7}")
_RECOMPUTE = ScenarioOptions().recompute
RUN_OPTIONS_OF_PLANS = tuple(column for column in RUN_OPTIONS if column != FLOAT8)
"""Options of runs that a scenario has."""
PLAN_FLAGS = MappingProxyType(
    {
        "tensor": "--tensor-parallel",
        "pipeline": "--pipeline",
        "data": "--data",
        "context": "--context-parallel",
        "expert": "--expert-parallel",
        "expert_tensor": "--expert-tensor-parallel",
        "interleave": "--interleave",
        "micro_batch": "--micro-batch",
        "state_shards": "--state-shards",
        "blocks": "--stage-blocks",
        "stage_recompute": "--stage-recompute",
    }
)
"""The option of each field of `PlanChoices` that may leave no plan."""


class RecomputeChoice(StrEnum):
    """Which activations are recomputed: what fits (auto), or one of `workload.plan.Recompute`, of old names too."""

    AUTO = "auto"
    NEVER = "never"
    NONE = "none"
    SELECTIVE = "selective"
    ALWAYS = "always"
    FULL = "full"


RECOMPUTES = {
    RecomputeChoice.AUTO: tuple(Recompute),
    RecomputeChoice.NEVER: (Recompute.NONE,),
    RecomputeChoice.NONE: (Recompute.NONE,),
    RecomputeChoice.SELECTIVE: (Recompute.SELECTIVE,),
    RecomputeChoice.ALWAYS: (Recompute.FULL,),
    RecomputeChoice.FULL: (Recompute.FULL,),
}
"""What stages may recompute, by the word of the option."""


def plan_choices(options: ScenarioOptions, micro_batches: tuple[int, ...], models: Sequence[Workload]) -> PlanChoices:
    """Every full plan that the options leave; a degree of which nothing is said is free, but for context parallelism.

    Args:
        options: as given.
        micro_batches: samples; all usual ones unless given.
        models: that are trained; without experts nothing is free of them.

    Raises:
        InputError: state is to be sharded over some replicas, and by no ZeRO stage; or stages that are given are none.
    """
    blocks, stage_recompute = given_stages(options)
    has_experts = any(model.has_experts for model in models)
    if options.state_shards and options.zero == (0,):
        message = "is for sharded state; give --zero 1, 2 or 3 too, or leave it out"
        raise InputError(message, source="--state-shards")
    return PlanChoices(
        tensor=options.tensor_parallel,
        pipeline=options.pipeline,
        data=options.data,
        context=options.context_parallel or (1,),
        expert=options.expert_parallel,
        interleave=options.interleave,
        micro_batch=micro_batches or free_micro_batches(options.global_batch, options.devices),
        zero=options.zero or (FREE_ZERO[1:] if options.state_shards else FREE_ZERO),
        state_shards=options.state_shards or (0,),
        recompute=recomputed(options.recompute),
        is_sequence_parallel=options.is_sequence_parallel,
        blocks=blocks,
        stage_recompute=stage_recompute,
        expert_tensor=options.expert_tensor_parallel or (() if has_experts else (0,)),
    )


def no_plan_fault(found: NoPlan) -> InputError:
    """That options leave no plan, at the option that is at fault where one is."""
    kind = RefusedPlanError if found.is_refused else InputError
    return kind(found.sentence, source=PLAN_FLAGS.get(found.field))


def given_stages(options: ScenarioOptions) -> tuple[tuple[int, ...], tuple[Recompute, ...]]:
    """Blocks and recomputation of each stage where they are given, else none.

    Raises:
        InputError: one is no list of stages, or does not go with the other, or with another option.
    """
    if not options.stage_blocks:
        if options.stage_recompute:
            message = "is for stages that are given; give --stage-blocks too, or leave it out"
            raise InputError(message, source="--stage-recompute")
        return (), ()
    words = _read_stages(options.stage_blocks, "--stage-blocks")
    if not all(map(_BLOCKS.fullmatch, words)):
        message = f"'{options.stage_blocks[:60]}' must be numbers of blocks, such as 7,8x14,7"
        raise InputError(message, source="--stage-blocks")
    if options.pipeline and len(words) not in options.pipeline:
        message = f"names {len(words)} stages, not the {' or '.join(map(str, options.pipeline))} of --pipeline"
        raise InputError(message, source="--stage-blocks")
    return tuple(map(int, words)), _given_recomputes(options, len(words))


def _given_recomputes(options: ScenarioOptions, num_stages: int) -> tuple[Recompute, ...]:
    """What each of the stages that are given recomputes; none where that is free."""
    if not options.stage_recompute:
        return ()
    source = "--stage-recompute"
    words = _read_stages(options.stage_recompute, source)
    if len(words) != num_stages:
        message = f"names {len(words)} stages, not the {num_stages} of --stage-blocks"
        raise InputError(message, source=source)
    if options.recompute != _RECOMPUTE:
        message = "says what --recompute says of all stages; leave one of them out"
        raise InputError(message, source=source)
    return tuple(parse_word(Recompute, word, source=source) for word in words)


def _read_stages(text: str, source: str) -> tuple[str, ...]:
    """A word for each stage: a count before an ``x`` stands for as many stages.

    Raises:
        InputError: a word is missing or a count is none, or there are more than `MAX_STAGES`.
    """
    found: list[str] = []
    for part in text.split(","):
        run = _RUN.fullmatch(part)
        repeats = int(run["count"] or 1) if run else 0
        if run is None:
            message = f"'{part[:60]}' in '{text[:60]}' is no stage, nor several such as 8x14; separate them by commas"
            raise InputError(message, source=source)
        if not 1 <= repeats <= MAX_STAGES - len(found):
            message = f"'{text[:60]}' must name 1 to {MAX_STAGES:,} stages, such as 7,8x14,7"
            raise InputError(message, source=source)
        found += [run["word"]] * repeats
    return tuple(found)


def recomputed(word: str) -> tuple[Recompute, ...]:
    """What a word of `--recompute` allows.

    Raises:
        InputError: it is none.
    """
    return RECOMPUTES[parse_word(RecomputeChoice, word, source="--recompute")]


def run_tables(options: ScenarioOptions, float8: str | None, *, software: str) -> list[str]:
    """Tables of the words that options say of a run of a software; of any, if none is named.

    Raises:
        InputError: a word is unknown, or the software cannot run so.
    """
    found = []
    for column, known in RUN_OPTIONS.items():
        word = float8 if column == FLOAT8 else getattr(options, column)
        if word is None:
            continue
        flag = f"--{column.replace('_', '-')}"
        if column == SELECTIVE and Recompute.SELECTIVE not in recomputed(options.recompute):
            message = (
                f"says what selective recomputation runs again, and --recompute {options.recompute} has none; leave it "
                "out or give --recompute selective or auto"
            )
            raise InputError(message, source=flag)
        table = known.table(parse_word(known.words, word, source=flag))
        fault = no_option(software, table) if table and software else ""
        if fault:
            message = f"{fault}; leave it out or name one of them"
            raise InputError(message, source=flag)
        found += [table] if table else []
    return found


def check_fuser(name: str | None) -> str:
    """The name of a fuser that is installed; empty where none is asked for.

    Raises:
        InputError: there is none of the name.
    """
    return "" if name is None else check_installed(PluginGroup.FUSERS, name, "--layer-fusion")


def check_can_fuse(name: str, *, is_planned: bool, has_die: bool) -> None:
    """Refuse layer fusion where no buffer holds tensors.

    Args:
        name: of the fuser; empty for none.
        is_planned: whether plans are full ones.
        has_die: whether the chip is a die.

    Raises:
        InputError: it was asked for and cannot be.
    """
    if name and not (is_planned and has_die):
        message = f"'{name}' is of dies with full plans, whose buffers hold tensors; leave it out, or --silicon phaze"
        raise InputError(message, source="--layer-fusion")


def cut_places(options: ScenarioOptions, *, is_design: bool) -> CutPlaces:
    """Where pipelines are cut: between units of designs and layers of machines that exist unless something is said.

    Args:
        options: as given.
        is_design: whether they run on designed chips, which are priced as searches and certificates have them.

    Raises:
        InputError: the word is unknown, or designs are asked for branches.
    """
    if options.cuts is None:
        return CutPlaces.UNITS if is_design else CutPlaces.LAYERS
    found = parse_word(CutPlaces, options.cuts, source="--cuts")
    if is_design and found is CutPlaces.BRANCHES:
        message = "'branches' is for machines that exist: designs, searches and certificates keep a chain; give layers"
        raise InputError(message, source="--cuts")
    return found
