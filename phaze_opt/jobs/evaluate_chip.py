"""The part of ``phaze-opt evaluate`` that prices a designed chip by its best placement, as every search does."""

from collections.abc import Mapping
from dataclasses import replace

from phaze_opt.errors import InputError
from phaze_opt.graph.sharding import model_flops
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.chip_template import AXIS
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.hardware.silicon.die_report import die_of
from phaze_opt.hardware.silicon.silicon import has_die
from phaze_opt.jobs.evaluate_request import EvaluateRequest, MachineOptions, choose_software
from phaze_opt.jobs.option_values import parse_integers, read_integer
from phaze_opt.jobs.priced_job import PricedJob
from phaze_opt.jobs.scenario import load_scenario
from phaze_opt.objective.bill import parts_of_design
from phaze_opt.objective.caveats import Note, notes_about
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.priced_as import PriceSetting
from phaze_opt.objective.reference_machines import evaluate_references
from phaze_opt.objective.scenario import Scenario
from phaze_opt.objective.scenario_options import MAX_MICRO_BATCH, SpaceOptions, declarations

DEFAULT_MICRO_BATCH = 8
NO_DIE = "what the chip costs is not known: the 22 nm tables count a part of it; leave out --as, or give --silicon die"
SAME_RATE = 1e-3
"""Share by which another micro-batch must be faster to be named."""
DESIGNED = "designed chips"
"""What a design without a name is called."""


def called(chip: Accelerator) -> str:
    """The name of a chip in an answer, with how many chiplets it is split into."""
    return f"{chip.name or DESIGNED}{f' ({chip.chiplets} chiplets)' if chip.chiplets > 1 else ''}"


def load_chip_scenario(request: EvaluateRequest, *, constants: Constants) -> Scenario:
    """The scenario that a request describes."""
    space = SpaceOptions(micro_batch=() if request.is_placed else micro_batches(request))
    fitted = load_fitted(request.machine.constants)
    found = load_scenario(
        request.scenario, request.models, common="arithmetic", constants=constants, space=space, fitted=fitted
    )
    if request.is_placed:
        return found
    return replace(found, stack=choose_software(request.scenario, device=None, fitted=fitted).stack)


def micro_batches(request: EvaluateRequest) -> tuple[int, ...]:
    """The samples of a micro-batch that plans were given; none if nothing was."""
    if request.micro_batch is None:
        return ()
    return parse_integers(request.micro_batch, option="--micro-batch", high=MAX_MICRO_BATCH)


def price_chip(request: EvaluateRequest) -> PricedJob:
    """One accelerator with its best placement.

    Raises:
        InputError: an option breaks a rule.
    """
    for option in declarations(MachineOptions).values():
        if getattr(request.machine, option.name) is not None:
            message = "is of full plans; leave it out, or leave out --as or --plans"
            raise InputError(message, source=option.flag)
    scenario = load_chip_scenario(request, constants=load_constants())
    known = scenario.constants_of()
    samples = one_micro_batch(request.micro_batch)
    accelerator = load_architecture(request.arch, constants=known)
    objective = Objective(scenario)
    evaluation = objective.evaluate_accelerator(accelerator, samples)
    notes = notes_about(evaluation, scenario=scenario, constants=known)
    if request.micro_batch is None:
        notes = (*notes, Note("micro_batch", _default_words(objective, evaluation)))
    die = die_of(accelerator, known) if has_die(known) else None
    parts = parts_of_design(accelerator, scenario, known) if has_die(known) else None
    unbilled = "" if parts else NO_DIE
    setting = _setting(scenario, accelerator, notes)
    return PricedJob(evaluation, setting, notes, die=die, parts=parts, unbilled=unbilled)


def reference_evaluations(request: EvaluateRequest, evaluation: Evaluation) -> Mapping[str, Evaluation]:
    """The reference machines under the same scenario, at the same micro-batch."""
    scenario = load_chip_scenario(request, constants=load_constants())
    return evaluate_references(scenario, (evaluation.micro_batch,), constants=scenario.constants_of())


def one_micro_batch(text: str | None) -> int:
    """The micro-batch of one evaluation."""
    value = DEFAULT_MICRO_BATCH if text is None else read_integer(text, low=1, high=MAX_MICRO_BATCH)
    if value is None:
        message = f"'{text}' must be an integer from 1 to {MAX_MICRO_BATCH:,}"
        raise InputError(message, source="--micro-batch")
    return value


def _default_words(objective: Objective, evaluation: Evaluation) -> str:
    """That nobody asked for the micro-batch, and which of those that searches choose among would be the fastest."""
    own, sizes = evaluation.micro_batch, AXIS["micro_batch"].default_values
    rates = {own: evaluation.throughput_samples_per_s}
    for size in sizes:
        if size not in rates:
            rates[size] = objective.evaluate_accelerator(evaluation.accelerator, size).throughput_samples_per_s
    best = max(rates, key=lambda size: rates[size])
    *others, last = map(str, sizes)
    said = f"micro-batches are of {own} as --micro-batch is not given; of {', '.join(others)} and {last}"
    if rates[best] <= rates[own] * (1.0 + SAME_RATE):
        return f"{said} samples none is faster"
    gain = f"{rates[best] / rates[own]:.3g} times as fast" if rates[own] else f"{rates[best]:,.4g} samples/s"
    return f"{said} samples {best} would be the fastest: {gain}"


def _setting(scenario: Scenario, accelerator: Accelerator, notes: tuple[Note, ...]) -> PriceSetting:
    """What placements are priced under: ideal software, which overlaps and loses nothing."""
    lengths = {model: scenario.sequence_length_of(model) for model in scenario.models}
    batch = scenario.global_batch
    return PriceSetting(
        machine=called(accelerator),
        software=scenario.stack.name,
        network=scenario.cluster.network.name,
        model=", ".join(model.name for model in scenario.models),
        num_devices=scenario.cluster.num_devices,
        tokens=batch * sum(lengths.values()),
        flops=batch * sum(model_flops(model, length) for model, length in lengths.items()),
        peak_flops_per_s=accelerator.peak_flops_per_s,
        notes=tuple(note.sentence.rstrip(".") for note in notes),
        global_batch=batch,
        sequence_length=max(lengths.values()),
        optimizer=scenario.optimizer.value,
        attention=scenario.attention.value,
        estimator=scenario.estimator,
        memory_bytes=float(accelerator.hbm_bytes),
    )
