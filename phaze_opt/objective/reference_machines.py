"""The references that every design is measured against, modelled as it is: two TPUv4 machines, and hand placements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from phaze_opt.errors import InputError
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.device_catalogue import find_device
from phaze_opt.hardware.presets import PHAZE_REFERENCE, TPU_V4, find_machine, load_architecture
from phaze_opt.objective.best_placement import PlacedModel, bound_option, placement_problem, solve_option
from phaze_opt.objective.compile import CompiledModel
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation, EvaluationStatus
from phaze_opt.objective.scenario import Scenario
from phaze_opt.objective.several_models import combine_evaluations
from phaze_opt.placement.problem import PlacementResult
from phaze_opt.placement.solve import evaluate_placement
from phaze_opt.record.arrays import Floats
from phaze_opt.record.document import parse_toml
from phaze_opt.record.plain_data import from_plain
from phaze_opt.workload.plan import PlanChoices, split_blocks
from phaze_opt.workload.workload import Workload

MODELLED = "modelled "
"""Begins what a machine that exists is called where it is priced as designs are, not under its own software."""
REFERENCES = (PHAZE_REFERENCE, f"{MODELLED}{TPU_V4}")


def evaluate_references(
    scenario: Scenario, micro_batches: Sequence[int], *, constants: Constants
) -> Mapping[str, Evaluation]:
    """Each reference at its best micro-batch of those given; budgets do not apply to references.

    Returns:
        By name: the machines of `REFERENCES` with the best plan or placement there is, then hand placements where the
        models have any (`evaluate_experts`), which may be infeasible.
    """
    machines = evaluate_machines(scenario, micro_batches, REFERENCES, constants=constants)
    return {**machines, **evaluate_experts(scenario, micro_batches, constants=constants)}


def evaluate_machines(
    scenario: Scenario, micro_batches: Sequence[int], names: Sequence[str], *, constants: Constants
) -> dict[str, Evaluation]:
    """Presets, files or chips inline, each at its best micro-batch of those given; budgets do not apply to them.

    Returns:
        In the order given, under the names that the chips have (`_called`).

    Raises:
        InputError: one is none of these.
    """
    return machines_under(Objective(scenario.without_budgets(), constants=constants), micro_batches, names)


def machines_under(objective: Objective, micro_batches: Sequence[int], names: Sequence[str]) -> dict[str, Evaluation]:
    """`evaluate_machines` by an objective at hand, which has no budgets."""
    best: dict[str, Evaluation] = {}
    for name in names:
        accelerator = load_reference(name, objective.constants)
        price, is_built = objective.evaluate_accelerator, find_machine(name.removeprefix(MODELLED)) is not None
        evaluations = [price(accelerator, micro_batch, is_built=is_built) for micro_batch in micro_batches]
        called = _called(name, accelerator)
        best[name if called in best else called] = max(
            evaluations, key=lambda evaluation: evaluation.throughput_samples_per_s
        )
    return best


def load_reference(name: str, constants: Constants) -> Accelerator:
    """The chip of a reference by its name, or of any architecture."""
    return load_architecture(name.removeprefix(MODELLED), constants=constants)


def _called(given: str, chip: Accelerator) -> str:
    """What a machine is called: its own name, unless it has none or a machine of the package has it."""
    if given.startswith(MODELLED):
        return MODELLED + _called(given.removeprefix(MODELLED), chip)
    if given == PHAZE_REFERENCE or find_device(given) is not None:
        return chip.name
    is_taken = chip.name == PHAZE_REFERENCE or find_device(chip.name) is not None
    return given if is_taken or not chip.name else chip.name


_BOOK = "expert_placements.toml"
EXPERT_PREFIX = "expert on "
"""Begins the name of every row that is a hand placement."""


def evaluate_experts(
    scenario: Scenario, micro_batches: Sequence[int], *, constants: Constants
) -> Mapping[str, Evaluation]:
    """The hand placement of the scenario's models on each machine, at its best micro-batch of those given.

    The tensor degree is the expert's, whatever degrees the scenario offers to a search, and budgets do not apply. On a
    cluster of another size the number of replicas follows the devices (`ExpertPlacement.data_parallel`). What does not
    fit is an evaluation with its reason. Several models share a machine and a micro-batch, each with its own placement.
    Of full plans the hand placement is the plan of its degrees and cuts that shards no state, under the scenario's
    software; micro-batch and recomputation are the best of those the scenario has, for each model of several.

    Returns:
        Evaluations by name; empty if one of the models has no hand placement.
    """
    book = load_expert_book()
    experts = [book.placement_of(model) for model in scenario.models]
    known = [expert for expert in experts if expert is not None]
    if len(known) < len(experts):
        return {}
    kind = _HandPricer if scenario.plans is None else _HandPlanner
    pricers = [
        kind(expert, replace(scenario.without_budgets(), models=(model,)), constants)
        for model, expert in zip(scenario.models, known, strict=True)
    ]
    best: dict[str, Evaluation] = {}
    for machine in book.accelerators:
        accelerator = load_architecture(machine, constants=scenario.constants_of(constants))
        evaluations = [_evaluate(pricers, accelerator, size, scenario=scenario) for size in micro_batches]
        best[f"{EXPERT_PREFIX}{machine}"] = max(evaluations, key=lambda each: each.throughput_samples_per_s)
    return best


def is_expert(name: str) -> bool:
    """Whether a reference's name is that of a hand placement."""
    return name.startswith(EXPERT_PREFIX)


def machines_of(references: Mapping[str, Evaluation]) -> dict[str, Evaluation]:
    """The references that are machines with their best plans, not hand placements."""
    return {name: other for name, other in references.items() if not is_expert(name)}


def _evaluate(
    pricers: "Sequence[_HandPricer | _HandPlanner]", accelerator: Accelerator, micro_batch: int, *, scenario: Scenario
) -> Evaluation:
    """All models on one machine at one micro-batch."""
    members = [pricer.evaluate(accelerator, micro_batch) for pricer in pricers]
    return members[0] if len(members) == 1 else combine_evaluations(members, scenario=scenario)


class _HandPricer:
    """Prices one model's hand placement on any machine; graphs are compiled once."""

    def __init__(self, expert: "ExpertPlacement", scenario: Scenario, constants: Constants) -> None:
        self._expert = expert
        self._has_devices = expert.devices_per_replica <= scenario.cluster.num_devices
        # With too few devices the expert's degree may not even be one of the scenario's; nothing is placed then.
        self._scenario = replace(scenario, tensor_parallel=(expert.tensor,)) if self._has_devices else scenario
        self._objective = Objective(self._scenario, constants=constants)

    def evaluate(self, accelerator: Accelerator, micro_batch: int) -> Evaluation:
        """One machine at one micro-batch."""
        if not self._has_devices:
            reason = self._expert.too_few(self._scenario.cluster.num_devices)
            return self._objective.refuse(accelerator, micro_batch, EvaluationStatus.TOO_FEW_DEVICES, reason)
        compiled = self._objective.compiled(0, micro_batch)
        estimates = self._objective.estimate(accelerator, micro_batch)
        placed = self._place(compiled, estimates, accelerator, micro_batch)
        return self._objective.evaluate_placed(accelerator, micro_batch, placed, estimates)

    def _place(
        self, compiled: CompiledModel, estimates: Estimates, accelerator: Accelerator, micro_batch: int
    ) -> PlacedModel:
        """Exact schedules of the expert's tensor degree, and the expert's placement on them."""
        (option,) = compiled.options
        times = bound_option(option, estimates, accelerator, scenario=self._scenario)
        mips = solve_option(option, times, estimates, accelerator, scenario=self._scenario)

        data_parallel = self._expert.data_parallel(
            num_devices=self._scenario.cluster.num_devices,
            global_batch=self._scenario.global_batch,
            micro_batch=micro_batch,
        )

        def price(makespan_s: Floats) -> PlacementResult:
            problem = placement_problem(compiled, [makespan_s], accelerator.hbm_bytes, scenario=self._scenario)
            return evaluate_placement(
                problem, tensor_parallel=self._expert.tensor, data_parallel=data_parallel, cuts=self._expert.cuts()
            )

        return PlacedModel(
            placement=price(times.upper_s),
            option=option,
            times=times,
            bound_s=price(times.lower_s).batch_time_s,
            mips=mips,
            num_placements=1,
        )


class _HandPlanner:
    """Prices one model's hand placement on any machine as a full plan."""

    def __init__(self, expert: "ExpertPlacement", scenario: Scenario, constants: Constants) -> None:
        self._expert, self._num_devices = expert, scenario.cluster.num_devices
        if self._has_devices:
            scenario = replace(scenario, plans=expert.as_choices(scenario))
        self._objective = Objective(scenario, constants=constants)

    @property
    def _has_devices(self) -> bool:
        return self._expert.devices_per_replica <= self._num_devices

    def evaluate(self, accelerator: Accelerator, micro_batch: int) -> Evaluation:
        """One machine; the micro-batch is the plan's."""
        if not self._has_devices:
            reason = self._expert.too_few(self._num_devices)
            return self._objective.refuse(accelerator, micro_batch, EvaluationStatus.TOO_FEW_DEVICES, reason)
        return self._objective.evaluate_accelerator(accelerator)


@dataclass(frozen=True, slots=True)
class ExpertPlacement:
    """A hand placement of one model.

    Attributes:
        num_layers: blocks of the model it was made for.
        pipeline: stages.
        data: replicas on the cluster it was made for.
        tensor: devices of a stage.
    """

    num_layers: int
    pipeline: int
    data: int
    tensor: int

    def __post_init__(self) -> None:
        """Check that every stage gets a block."""
        if min(self.data, self.tensor) < 1 or not 1 <= self.pipeline <= self.num_layers:
            message = f"hand placement {self} must have positive degrees and at most one stage a block"
            raise InputError(message)

    @property
    def devices_per_replica(self) -> int:
        """Devices that one replica takes."""
        return self.pipeline * self.tensor

    def data_parallel(self, *, num_devices: int, global_batch: int, micro_batch: int) -> int:
        """Replicas on a cluster: as many as its devices hold, but none without a micro-batch; 0 if not even one fits.

        With the 1,024 devices and the batches it was made for, this is ``data``.
        """
        return min(num_devices // self.devices_per_replica, -(-global_batch // micro_batch))

    def too_few(self, num_devices: int) -> str:
        """That not even one replica fits so many devices."""
        return (
            f"the hand placement of {self.pipeline} stages x {self.tensor} devices does not fit {num_devices} devices"
        )

    def as_choices(self, scenario: Scenario) -> PlanChoices:
        """The full plans that are this placement, under a scenario of full plans; one replica fits its devices.

        Replicas are as many as the devices hold and the batch divides into, as training software demands.
        """
        assert scenario.plans is not None
        batch, sizes = scenario.global_batch, scenario.plans.micro_batch
        most = self.data_parallel(num_devices=scenario.cluster.num_devices, global_batch=batch, micro_batch=min(sizes))
        even = (data for data in range(most, 0, -1) if any(batch % (data * size) == 0 for size in sizes))
        return replace(
            scenario.plans,
            tensor=(self.tensor,),
            pipeline=(self.pipeline,),
            data=(next(even, 1),),
            context=(1,),
            expert=(1,),
            expert_tensor=(0,),
            interleave=(1,),
            zero=(0,),
            state_shards=(0,),
            blocks=split_blocks(self.num_layers, self.pipeline),
            stage_recompute=(),
        )

    def cuts(self) -> tuple[int, ...]:
        """First layer of every stage but the first, in a chain of embedding, blocks and head.

        Blocks are split as evenly as they can be. The embedding goes with the first stage and the head with the last;
        stages with one block more come first, so that the head, which takes longer, is not in one of them.
        """
        counts = split_blocks(self.num_layers, self.pipeline)
        return tuple(1 + sum(counts[:stage]) for stage in range(1, self.pipeline))


@dataclass(frozen=True, slots=True)
class ExpertBook:
    """All hand placements.

    Attributes:
        source: where they come from.
        accelerators: presets that they are priced on.
        num_devices: of the cluster they were made for.
        placements: by name of the model.
    """

    source: str
    accelerators: tuple[str, ...]
    num_devices: int
    placements: Mapping[str, ExpertPlacement]

    def placement_of(self, model: Workload) -> ExpertPlacement | None:
        """The hand placement of a model; None if there is none, or if the name stands for another depth."""
        known = self.placements.get(model.name)
        return known if known is not None and known.num_layers == model.num_units else None


@cache
def load_expert_book() -> ExpertBook:
    """The hand placements that come with the package."""
    text = resources.files("phaze_opt.objective").joinpath(_BOOK).read_text(encoding="utf-8")
    return from_plain(ExpertBook, parse_toml(text, source=_BOOK).values)
