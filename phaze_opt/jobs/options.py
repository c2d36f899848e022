"""Options that several use cases share, declared once for the command line and for Python."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from phaze_opt.errors import InputError
from phaze_opt.objective.scenario_options import MACHINES, MODELS, WORKLOAD, Kind, ScenarioOptions, declared, same
from phaze_opt.record.suggestions import parse_word

if TYPE_CHECKING:
    from phaze_opt.objective.bill import CostTerms

RECORDS = "Output and records"
COSTS = "Money, energy and carbon"
MAX_JOBS = 1024
MAX_SEED = 2**32 - 1
RANGE_HELP = "Price the answer again under each doubt that it hangs on (no more than ten times)."
JOBS_HELP = "Processes; changes the time, never a number."
DASK_HELP = "Evaluate on a Dask cluster: tcp://HOST:PORT, or local (with --jobs processes)."
BASELINE = "tpu-v4"
_of_workload = partial(declared, panel=WORKLOAD)
_of_records = partial(declared, panel=RECORDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """One model, or several for a common design."""

    model: str = _of_workload(
        "", "A model of the zoo, a Hugging Face config.json or a traced model.", Kind.TEXT, values=MODELS
    )
    models: str = _of_workload("", "Several, comma-separated: one design for all.", Kind.TEXT, values=MODELS)
    allow_unknown: bool = _of_workload(
        False, "Count operations of traced models that no rule knows by their bytes, and name them.", Kind.SWITCH
    )
    common: str = _of_workload(
        "arithmetic",
        "Mean over models: arithmetic, geometric or worst.",
        Kind.WORD,
        enumeration="phaze_opt.objective.scenario:CommonMean",
    )

    @property
    def names(self) -> str:
        """What was given, under either option."""
        return self.model or self.models


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """Where a command keeps its work, and what records it."""

    work_dir: Path = _of_records(Path(), "Where journals, certificates and the local store are kept.", Kind.PATH)
    tracking_uri: str = _of_records(
        "",
        "An MLflow store; by default MLFLOW_TRACKING_URI (the place for passwords), else a sqlite file here.",
        Kind.TEXT,
    )
    experiment: str = _of_records("phaze-opt", "Name of the MLflow experiment.", Kind.TEXT)
    tracking: bool = _of_records(True, "Record it with the tracker.", Kind.SWITCH)
    tracker: str = _of_records("mlflow", "Tracker plug-in that records.", Kind.TEXT, values="phaze_opt.trackers")

    @property
    def chosen_tracker(self) -> str:
        """The tracker's name; that of the one that records nothing where tracking is off."""
        from phaze_opt.plugins import PluginGroup, given_plugin

        return given_plugin(PluginGroup.TRACKERS, self.tracker) if self.tracking else "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostOptions:
    """At what prices, on which grid and for how many tokens costs are said; no throughput follows from them."""

    tokens: float | None = declared(
        None, "Also say what training on so many tokens takes, such as 15T.", Kind.AMOUNT, panel=COSTS, shown="none"
    )
    grid: str = declared(
        "world", "Where it runs: world, taiwan, united_states, iceland, wind or coal.", Kind.TEXT, panel=COSTS
    )
    prices: Path | None = declared(
        None,
        "Prices of your own by key (TOML), such as memory.hbm_usd_per_gb = 14.",
        Kind.PATH,
        panel=COSTS,
        shown="the package's",
    )

    def terms(self) -> CostTerms:
        """What costs are said on.

        Raises:
            InputError: an unknown grid, or a file of prices that breaks a rule.
        """
        from phaze_opt.hardware.economics.prices import load_prices, read_prices
        from phaze_opt.objective.bill import CostTerms

        prices = load_prices() if self.prices is None else read_prices(self.prices)
        try:
            return CostTerms(prices, self.grid, self.tokens)
        except InputError as error:
            raise InputError(str(error).removeprefix(f"'{error.key}': "), source="--grid") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineOptions:
    """What a design is held against."""

    baseline: str = declared(
        BASELINE,
        "Say how much better the design is than these, machines that exist under their own software: presets or files, "
        "comma-separated.",
        Kind.TEXT,
        panel=RECORDS,
        values=MACHINES,
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The machines.

        Raises:
            InputError: as `machine_names`.
        """
        return machine_names(self.baseline)


def machine_names(text: str) -> tuple[str, ...]:
    """Machines separated by commas; sizes inline belong to one design, and one named again begins another.

    Raises:
        InputError: a name is blank, or two are of one machine.
    """
    from phaze_opt.hardware.device_catalogue import find_device

    found: list[str] = []
    keys: set[str] = set()
    for word in (each.strip() for each in text.split(",")):
        key, is_size, _ = word.partition("=")
        if is_size and keys and key.strip() not in keys:
            found[-1] += f",{word}"
        else:
            found.append(word)
            keys = set()
        keys |= {key.strip()} if is_size else set()
    if not all(found) or len(set(found)) < len(found):
        message = f"'{text[:60]}' must be machines separated by commas, each once, such as h100,mi300x"
        raise InputError(message, source="--baseline")
    of_machine: dict[str, str] = {}
    for name in found:
        if (device := find_device(name)) is not None and (other := of_machine.setdefault(device.name, name)) != name:
            message = f"{other} and {name} are one machine; name it once"
            raise InputError(message, source="--baseline")
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormOptions:
    """Whose published form an answer has."""

    published_form: str | None = same(ScenarioOptions, "published_form")

    def checked(self) -> str | None:
        """The form that was asked for.

        Raises:
            InputError: there is none of the name.
        """
        from phaze_opt.objective.scenario import PublishedForm

        if self.published_form is None:
            return None
        return parse_word(PublishedForm, self.published_form, source="--as").value


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOptions:
    """Code of the user's own that a file names, and that runs as the user names it too."""

    plugin_file: tuple[str, ...] = declared(
        (), "A file of a strategy or pruner of your own (mine.py) that the study names. May be repeated.", Kind.TEXTS
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SiliconOptions:
    """What chips are built of, the network whose links they drive, and whether they are of the published form."""

    published_form: str | None = same(ScenarioOptions, "published_form")
    silicon: str | None = same(ScenarioOptions, "silicon")
    process_nm: int = same(ScenarioOptions, "process_nm")
    hbm_generation: str | None = same(ScenarioOptions, "hbm_generation")
    network: str = same(ScenarioOptions, "network")
