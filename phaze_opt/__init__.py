"""phaze_opt: finds the accelerator, the placement and the operator schedule that train a model fastest.

The names below load their rooms when they are first used, so importing the package costs nothing. `search`, `certify`
and `study` are rooms that can be called; `evaluate`, `plans` and `validate` are functions.
"""

from importlib import import_module

TYPE_CHECKING = False  # as in typing, which takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

OBJECTS_PER_COLLECTION = 100_000
"""New objects between two looks of the garbage collector, in commands and workers: after 700 each it takes a tenth."""

_HOMES = {
    "AttentionForm": "phaze_opt.workload.training",
    "Cluster": "phaze_opt.hardware.network",
    "CommonMean": "phaze_opt.objective.scenario",
    "DesignPoint": "phaze_opt.hardware.chip_template",
    "Evaluation": "phaze_opt.objective.evaluation",
    "Exclusivity": "phaze_opt.schedule.problem",
    "Goal": "phaze_opt.objective.goals",
    "Objective": "phaze_opt.objective.evaluate",
    "Optimizer": "phaze_opt.workload.training",
    "RecomputePolicy": "phaze_opt.placement.problem",
    "Scenario": "phaze_opt.objective.scenario",
    "SearchConfig": "phaze_opt.search.config",
    "certify": "phaze_opt.certify",
    "die_space": "phaze_opt.space.known_spaces",
    "evaluate": "phaze_opt.api.pricing",
    "load_architecture": "phaze_opt.hardware.presets",
    "load_model": "phaze_opt.graph.any_model:load_any_model",
    "load_network": "phaze_opt.hardware.networks",
    "load_space": "phaze_opt.space.known_spaces",
    "make_scenario": "phaze_opt.objective.scenario",
    "optuna_strategy": "phaze_opt.search.samplers.optuna_sampler",
    "phaze_space": "phaze_opt.space.known_spaces",
    "plans": "phaze_opt.api.pricing",
    "register": "phaze_opt.api.own_plugins",
    "run_search": "phaze_opt.search.run",
    "search": "phaze_opt.search",
    "study": "phaze_opt.study",
    "validate": "phaze_opt.api.judged",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 -- names of lazily loaded objects


def __getattr__(name: str) -> "Any":
    """Load a name from its room when it is first asked for (PEP 562)."""
    if name not in _HOMES:
        message = f"module 'phaze_opt' has no attribute '{name}'"
        raise AttributeError(message)
    home, _, own_name = _HOMES[name].partition(":")
    module = import_module(home)
    # A room is the module itself, which can be called.
    return module if home == f"{__name__}.{name}" else getattr(module, own_name or name)


def __dir__() -> list[str]:
    """Names for completion."""
    return sorted(__all__)
