"""What an answer rests on without saying so: rules that each give one sentence where they apply.

A note says that a model is coarse, was continued or did more than was asked, or that an answer is what the space allows
rather than what is best. Commands print notes behind their answer and put them into their line of JSON.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import gcd, inf
from types import MappingProxyType

from phaze_opt.graph.any_model import AnyModel
from phaze_opt.graph.traced.traced_workload import TracedWorkload
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.area import Buffer, buffers_of, format_size
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.designed_chip import HbmForm, hbm_bandwidth_bytes_per_s
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.silicon.chip_silicon import chip_area_mm2, chip_power_w
from phaze_opt.hardware.silicon.die_report import FITTED_ARRAY_SHARE, die_of
from phaze_opt.hardware.silicon.silicon import has_die
from phaze_opt.objective.chip_limits import binding_limits, design_of, ends_of, free_keys
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.scenario import Scenario
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIGA, bytes_to_gib


@dataclass(frozen=True, slots=True)
class Note:
    """One thing to know about an answer: the rule's key and a sentence."""

    key: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What notes are about; a rule without what it needs says nothing.

    Attributes:
        constants: in force.
        accelerator: the chip answered with.
        evaluation: of it.
        scenario: what it was evaluated for.
        space: what was searched, or has the design.
        is_best: whether the chip is the best of the space.
        models: that are trained, where there is no scenario.
        cluster: that they are trained on, likewise.
    """

    constants: Constants
    accelerator: Accelerator | None = None
    evaluation: Evaluation | None = None
    scenario: Scenario | None = None
    space: SearchSpace | None = None
    is_best: bool = True
    models: tuple[AnyModel, ...] = ()
    cluster: Cluster | None = None


def notes_about(
    evaluation: Evaluation | None, *, scenario: Scenario, constants: Constants, space: SearchSpace | None = None
) -> tuple[Note, ...]:
    """Notes about an evaluation, or about the best of a space.

    Args:
        evaluation: the answer; None where nothing is feasible.
        scenario: what was asked.
        constants: in force.
        space: what was searched, if a space was.
    """
    accelerator = None if evaluation is None else evaluation.accelerator
    return apply_rules(Answer(constants, accelerator, evaluation, scenario, space))


def apply_rules(answer: Answer) -> tuple[Note, ...]:
    """A note for each rule that applies, in the order of the rules."""
    return tuple(Note(key, sentence) for key, rule in RULES.items() if (sentence := rule(answer)))


def notes_to_json(notes: Sequence[Note]) -> list[dict[str, str]]:
    """Notes as JSON."""
    return [asdict(note) for note in notes]


def hbm_bandwidth_note(answer: Answer) -> str:
    """That bandwidth follows from the capacity in whole stacks."""
    chip, known = answer.accelerator, answer.constants
    if chip is None or HbmForm(known.option("hbm_form")) is not HbmForm.STACKED:
        return ""
    if chip.hbm_bandwidth_bytes_per_s != hbm_bandwidth_bytes_per_s(chip.hbm_bytes, constants=known):
        return ""
    stack, rate = known.value("hbm.stack_bytes"), known.value("hbm.stack_bandwidth_bytes_per_s")
    whole = chip.hbm_bandwidth_bytes_per_s / rate * stack
    like = "" if whole == chip.hbm_bytes else f", as much as {bytes_to_gib(whole):g} GB have"
    return (
        f"HBM bandwidth is taken as {rate / GIGA:,.0f} GB/s for every started {bytes_to_gib(stack):g} GB: "
        f"{chip.hbm_bandwidth_bytes_per_s / GIGA:,.0f} GB/s at {bytes_to_gib(chip.hbm_bytes):g} GB{like}."
    )


def buffer_note(answer: Answer) -> str:
    """That areas and energies of buffers were continued beyond their tables."""
    if answer.accelerator is None or has_die(answer.constants):
        return ""
    outside = [buffer for buffer in buffers_of(answer.accelerator, answer.constants) if not buffer.is_published]
    if not outside:
        return ""
    return f"Area, energy and TDP are extrapolated: {'; '.join(_outside(buffer) for buffer in outside)}."


def die_note(answer: Answer) -> str:
    """That a chip could not be built, or that its silicon was not among what was fitted."""
    if answer.accelerator is None or not has_die(answer.constants):
        return ""
    broken = die_of(answer.accelerator, answer.constants).broken
    return f"This die could not be built: {'; '.join(broken)}." if broken else ""


def array_note(answer: Answer) -> str:
    """That arrays fill more of a die than of any whose area is known."""
    if answer.accelerator is None or not has_die(answer.constants):
        return ""
    share = die_of(answer.accelerator, answer.constants).array_share
    if share <= FITTED_ARRAY_SHARE:
        return ""
    return (
        f"Arrays fill {share:.1%} of this die, and at most {FITTED_ARRAY_SHARE:.0%} of any that areas were fitted to: "
        "its area and power are extrapolated."
    ).replace("%", " %")


def padding_note(answer: Answer) -> str:
    """That more samples are computed than a global batch has."""
    if answer.evaluation is None or answer.scenario is None:
        return ""
    batch = answer.scenario.global_batch
    for member in answer.evaluation.members or (answer.evaluation,):
        placement = member.placement
        if placement is None:
            continue
        computed = placement.data_parallel * placement.num_micro_batches * member.micro_batch
        if computed > batch:
            remedy = "a smaller micro-batch or another batch" if member.micro_batch > 1 else "another global batch"
            return (
                f"Of the {computed:,} samples that an iteration computes ({placement.data_parallel:,} replicas x "
                f"{placement.num_micro_batches:,} micro-batches of {member.micro_batch:,}) {computed - batch:,} are "
                f"padding, as the global batch is {batch:,}; {remedy} wastes less."
            )
    return ""


def partial_nodes_note(answer: Answer) -> str:
    """That the devices do not fill the nodes of their network, and which file prices others that they do fill."""
    cluster = answer.cluster if answer.scenario is None else answer.scenario.cluster
    if cluster is None or len(cluster.network.dimensions) == 1:
        return ""
    devices, size = cluster.num_devices, cluster.network.dimensions[0].size
    if devices <= size or devices % size == 0:
        return ""
    filled = next(each for each in range(size, 0, -1) if devices % each == 0)
    remedy = f"; a network file with size = {filled} prices {devices // filled:,} nodes of {filled}"
    return (
        f"{devices:,} devices do not fill nodes of {size}, and groups across nodes are priced as islands of "
        f"{gcd(devices, size)}{remedy if filled > 1 else ''}."
    )


def idle_devices_note(answer: Answer) -> str:
    """How many devices the full plan of an evaluation leaves idle."""
    if answer.evaluation is None or answer.scenario is None:
        return ""
    plans = answer.scenario.plans
    return idle_devices(answer.evaluation, answer.scenario.cluster.num_devices, plans.micro_batch if plans else ())


def idle_devices(evaluation: Evaluation, devices: int, micro_batches: Sequence[int]) -> str:
    """How many of a cluster's devices a full plan leaves idle, and the nearest batches that more replicas can share.

    Args:
        evaluation: of the plan.
        devices: of the cluster.
        micro_batches: that a plan may have.
    """
    placement = evaluation.placement
    if placement is None or placement.plan is None or placement.devices_used >= devices:
        return ""
    data = placement.plan.data
    own = f"{data:,} replica{'s' * (data > 1)}"
    idle = devices - placement.devices_used
    said = f"{idle:,} of {devices:,} devices {'stays' if idle == 1 else 'stay'} idle"
    batch = data * placement.plan.micro_batch * placement.num_micro_batches
    replicas = devices // (placement.devices_used // data)
    if replicas == data:
        return f"{said}: no further replica fits."
    units = [replicas * each for each in micro_batches if each > 0]
    below = max((batch // each * each for each in units), default=0)
    # As many replicas could share the batch, so that something else was asked for.
    if below == batch or not units:
        return f"{said}: this plan has {own}, and {replicas:,} fit."
    above = min(batch // each * each + each for each in units)
    nearest = " or ".join(f"{each:,}" for each in (below, above) if each)
    return f"{said}: a global batch of {batch:,} divides among {own}, not {replicas:,}; {nearest} would."


def area_budget_note(answer: Answer) -> str:
    """That a budget of area is larger than every chip of the space."""
    if answer.space is None or answer.scenario is None or answer.scenario.max_area_mm2 is None:
        return ""
    budget, whole = answer.scenario.max_area_mm2, replace(answer.space, max_area_um2=inf)
    table = whole.largest_chips(answer.constants)
    largest = float(chip_area_mm2(table, answer.constants).max())
    if budget < largest:
        return ""
    return (
        f"The budget of {budget:g} mm2 cannot bind: the largest chip of the space {whole.name} has {largest:.1f} mm2; "
        "a space file with a larger area_budget_mm2 (--space) has larger ones."
    )


def tdp_budget_note(answer: Answer) -> str:
    """That a budget of power is larger than any chip of the space needs."""
    if answer.space is None or answer.scenario is None or answer.scenario.max_tdp_w is None:
        return ""
    budget, network = answer.scenario.max_tdp_w, answer.scenario.cluster.network
    table = answer.space.largest_chips(answer.constants)
    largest = float(chip_power_w(table, network, answer.constants).max())
    if budget < largest:
        return ""
    area = answer.scenario.max_area_mm2
    within = "" if area is None else f" within {area:g} mm2"
    remedy = "a space file (--space)" if area is None else "a larger budget of area or a space file (--space)"
    return (
        f"The budget of {budget:g} W cannot bind: no chip of the space {answer.space.name}{within} has a TDP above "
        f"{largest:,.0f} W; {remedy} has larger ones."
    )


def edge_note(answer: Answer) -> str:
    """That a design lies on the end of an axis of the space."""
    stand = _standing(answer)
    if stand is None:
        return ""
    point, space = stand
    found = ends_of(point, space)
    if not found:
        return ""
    ends = "; ".join(f"{end.key} at its {'high' if end.is_high else 'low'}est, {end.value}" for end in found)
    if not answer.is_best:
        return f"On the axes of the space {space.name} this design has {ends}."
    own = "--hbm and --micro-batch theirs" if len(space.axes.micro_batch) > 1 else "--hbm its own"
    return (
        f"The best design is at the edge of the space {space.name} ({ends}): better ones may lie beyond. "
        f"A space file (--space) widens any axis, {own}."
    )


def limits_note(answer: Answer) -> str:
    """Which limits the best design of a space stands at, and what it could have more of."""
    stand, scenario = _standing(answer), answer.scenario
    if stand is None or scenario is None:
        return ""
    point, space = stand
    found = binding_limits(
        point,
        space,
        scenario.cluster.network,
        answer.constants,
        max_area_mm2=scenario.max_area_mm2,
        max_tdp_w=scenario.max_tdp_w,
    )
    if not found:
        return ""
    held = "; ".join(f"{limit.name} ({', '.join(limit.keys)})" for limit in found)
    free = free_keys(point, space, found)
    more = f" There is room for more of {', '.join(free)}." if free else ""
    return f"What one step more of a parameter would break: {held}.{more}"


def _standing(answer: Answer) -> tuple[DesignPoint, SearchSpace] | None:
    """The design on the axes of its space; None without a space, or where nothing is feasible."""
    chip, evaluation, space = answer.accelerator, answer.evaluation, answer.space
    if chip is None or space is None or (evaluation is not None and not evaluation.is_feasible):
        return None
    if evaluation is None and answer.is_best:
        return None
    batches = space.axes.micro_batch
    # Of full plans the micro-batch is a degree of each plan.
    batch = evaluation.micro_batch if evaluation is not None and len(batches) > 1 else batches[0]
    return design_of(chip, batch, space), space


def model_note(answer: Answer) -> str:
    """How a config was read, and parts of a traced model that are priced as free."""
    found: list[str] = []
    for model in _models(answer):
        found += filter(None, [model.sparse_note]) if isinstance(model, TracedWorkload) else model.notes
    return "; ".join(found)


def traced_model_note(answer: Answer) -> str:
    """What files of traced models say, and operations that are counted by their bytes."""
    sentences: list[str] = []
    for model in _models(answer):
        if isinstance(model, TracedWorkload):
            sentences += [f"{note.rstrip('.')}." for note in model.notes]
            unknown = ", ".join(model.unknown_operators)
            sentences += [f"Of {model.name} no rule knows {unknown}: counted by their bytes."] if unknown else []
    return " ".join(sentences)


def no_attention_note(answer: Answer) -> str:
    """That no step of a model without attention was ever measured."""
    return " ".join(
        f"{model.name} is no transformer, and no step of such a model was measured: errors that are stated "
        "are those of transformers."
        for model in _models(answer)
        if not has_transformer([model])
    )


def _models(answer: Answer) -> tuple[AnyModel, ...]:
    """That are trained."""
    return answer.models if answer.scenario is None else tuple(answer.scenario.models)


def has_transformer(models: Iterable[AnyModel]) -> bool:
    """Whether any of some models has attention."""
    return any(not isinstance(model, TracedWorkload) or model.has_attention for model in models)


def sparse_note(answer: Answer) -> str:
    """That weights are sparse, which a design alone does not show."""
    weights = None if answer.scenario is None else answer.scenario.sparsity
    if weights is None:
        return ""
    return f"weights of blocks are sparse ({weights}), as --sparsity asks; what that does to accuracy is not modelled."


RULES: Mapping[str, Callable[[Answer], str]] = MappingProxyType(
    {
        "hbm_bandwidth": hbm_bandwidth_note,
        "extrapolated_buffers": buffer_note,
        "no_die": die_note,
        "array_share": array_note,
        "model": model_note,
        "traced_model": traced_model_note,
        "no_attention": no_attention_note,
        "sparse_weights": sparse_note,
        "padded_batch": padding_note,
        "partial_nodes": partial_nodes_note,
        "idle_devices": idle_devices_note,
        "area_budget": area_budget_note,
        "tdp_budget": tdp_budget_note,
        "edge_of_space": edge_note,
        "binding_limits": limits_note,
    }
)
"""Every rule by the key of its notes."""


def _outside(buffer: Buffer) -> str:
    return (
        f"a {buffer.name} of {format_size(buffer.size_bytes)} is not among the published sizes "
        f"({format_size(buffer.low_bytes)} to {format_size(buffer.high_bytes)})"
    )


HEAD_STEP = 16
"""Attention heads that are no multiple of this have few fast kernels on GPUs."""
LAID_STEP = 32
"""Heads are laid out in multiples of this."""
GOOD_HEAD_STEP = 64
"""Heads that are no multiple of this leave part of the widest instructions empty."""


def head_note(head_size: int) -> str:
    """What of a head's size costs time on GPUs, as a sentence; empty if nothing does."""
    if head_size % HEAD_STEP:
        laid = -(-head_size // LAID_STEP) * LAID_STEP
        return (
            f"heads of {head_size} are no multiple of {HEAD_STEP}: laid out as {laid}, and few fused kernels take them"
        )
    if head_size % GOOD_HEAD_STEP:
        return f"heads of {head_size} are no multiple of {GOOD_HEAD_STEP}: part of the widest instructions stays empty"
    return ""
