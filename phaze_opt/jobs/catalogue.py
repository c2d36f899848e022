"""The jobs of the lists: models, machines, strategies, pruners and spaces, as rows for people and programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from phaze_opt.errors import InputError
from phaze_opt.jobs.options import FormOptions, SiliconOptions
from phaze_opt.objective.scenario_options import SpaceOptions

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from phaze_opt.hardware.accelerator import Accelerator
    from phaze_opt.hardware.constants import Constants
    from phaze_opt.hardware.device import Device


def model_rows(names: Sequence[str]) -> list[dict[str, Any]]:
    """Models by name, all of the zoo unless some are named.

    Raises:
        InputError: one is not known.
    """
    from phaze_opt.workload.config import load_model
    from phaze_opt.workload.zoo import list_models

    rows: list[dict[str, Any]] = []
    for name, model in ((name, load_model(name)) for name in map(_model_name, names or list_models())):
        sizes = {"parameters": model.num_parameters, "layers": model.num_layers, "hidden": model.hidden_size}
        rows.append({"name": name, **sizes, "source": model.source})
    return rows


def strategy_rows() -> list[dict[str, Any]]:
    """Strategies of all packages, and what each is capable of."""
    from phaze_opt.plugins import PluginGroup, list_plugins
    from phaze_opt.search.run import load_strategy

    loaded = [(entry, load_strategy(entry.name)) for entry in list_plugins(PluginGroup.STRATEGIES)]
    return [
        _plugin_row(entry, strategy) | {"capabilities": sorted(each.value for each in strategy.capabilities)}
        for entry, strategy in loaded
    ]


def pruner_rows() -> list[dict[str, Any]]:
    """Pruners of all packages, and whether each is safe."""
    from phaze_opt.plugins import PluginGroup, list_plugins
    from phaze_opt.search.run import load_pruner

    loaded = [(entry, load_pruner(entry.name)) for entry in list_plugins(PluginGroup.PRUNERS)]
    return [_plugin_row(entry, pruner) | {"is_safe": pruner.is_safe} for entry, pruner in loaded]


def describe_space(space: SpaceOptions, silicon: SiliconOptions) -> dict[str, Any]:
    """A space in numbers: candidates, those that may be built, points, and the range of every axis.

    Raises:
        InputError: an option breaks a rule.
    """
    from phaze_opt.hardware.networks import load_network
    from phaze_opt.objective.scenario import PlanSpace, build_space
    from phaze_opt.objective.silicon_options import chosen_silicon

    is_published = FormOptions(published_form=silicon.published_form).checked() is not None
    if space.micro_batch and not is_published:
        message = "is part of each plan and no axis of the space; leave it out, or give --as phaze too"
        raise InputError(message, source="--micro-batch")
    dies = chosen_silicon(silicon, load_network(silicon.network, num_devices=1), space=space.space)
    points = build_space(space, PlanSpace.PHAZE if is_published else PlanSpace.FULL, silicon=dies)
    return {
        "name": points.name,
        "candidates": points.num_candidates,
        "feasible": points.num_architectures,
        "points": points.size,
        "ranges": {axis: span for axis, span in points.ranges().items() if is_published or axis != "micro_batch"},
        "digest": points.digest,
    }


def machine_rows(
    names: Sequence[str], silicon: SiliconOptions, words: Callable[[Accelerator], str]
) -> list[dict[str, Any]]:
    """Presets by name, all unless some are named; ``words`` says of which silicon an area is.

    Raises:
        InputError: one is not known; a near miss is suggested.
    """
    from phaze_opt.hardware.networks import load_network
    from phaze_opt.hardware.presets import list_architectures
    from phaze_opt.hardware.silicon.silicon import constants_with
    from phaze_opt.objective.silicon_options import chosen_silicon, meant_machine, silicon_form

    known = constants_with(chosen_silicon(silicon, load_network(silicon.network, num_devices=1)))
    asked = [_preset(meant_machine(name, silicon_form(silicon))) for name in names]
    return [_row(name, known, words) for name in asked or list_architectures()]


def _plugin_row(entry: EntryPoint, plugin: object) -> dict[str, Any]:
    """What is said of any plug-in: its summary is the first paragraph of its class's docstring."""
    summary = (type(plugin).__doc__ or "").strip().split("\n\n")[0]
    return {
        "name": entry.name,
        "summary": " ".join(summary.split()).replace("``", "'"),
        "package": entry.dist.name if entry.dist is not None else "",
    }


def _preset(text: str) -> str:
    """Name of the preset that a text means.

    Raises:
        InputError: none or several, with a near miss.
    """
    from phaze_opt.hardware.device_catalogue import find_device
    from phaze_opt.hardware.presets import explain_name, list_architectures

    device = find_device(text)
    if text in list_architectures():
        return text
    if device is None:
        raise InputError(explain_name(text), source="NAME")
    return device.name


def _row(name: str, known: Constants, words: Callable[[Accelerator], str]) -> dict[str, Any]:
    """All that is known of a preset, as ``--json`` prints it."""
    from phaze_opt.hardware.presets import architecture_source, find_machine, load_architecture
    from phaze_opt.hardware.silicon.chip_silicon import area_mm2_of
    from phaze_opt.objective.evaluation import architecture_to_json

    accelerator = load_architecture(name, constants=known)
    return {
        "name": name,
        **architecture_to_json(accelerator),
        "peak_tflops": round(accelerator.peak_flops_per_s / 1e12, 1),
        "area_mm2": area_mm2_of(accelerator, known),
        "silicon": words(accelerator),
        "source": architecture_source(name),
        **_machine_row(find_machine(name)),
    }


def _machine_row(device: Device | None) -> dict[str, Any]:
    """What is known of a machine that exists beyond its chip; blank and 0 of designs and where not published."""
    from phaze_opt.hardware.device import MatrixStyle
    from phaze_opt.hardware.device_catalogue import find_device

    names: list[str] = []
    if device is None:
        kind, tflops = "design", {}
    else:
        kind = "GPU" if device.style is MatrixStyle.TILES else "systolic arrays"
        names = [name for name in (*device.data_names, *device.aliases) if find_device(name) is device]
        tflops = {str(path): rate / 1e12 for path, rate in device.peak_flops_per_s.items()}
    return {
        "kind": kind,
        "maker": "" if device is None else device.maker,
        "names": names,
        "machine_tflops": tflops,
        "network": "" if device is None else device.network,
        "published_area_mm2": 0.0 if device is None else device.die_mm2,
        "published_tdp_w": 0.0 if device is None else device.tdp_w,
    }


def _model_name(text: str) -> str:
    """The model that a text names, in any case.

    Raises:
        InputError: there is none; a near miss is suggested.
    """
    from phaze_opt.record.suggestions import known_as, suggest
    from phaze_opt.workload.zoo import list_models

    name = known_as(text, list_models())
    if name not in list_models():
        message = f"no model is named '{text[:60]}'; {suggest(text, list_models())}"
        raise InputError(message, source="NAME")
    return name
