"""The configuration of one search, and the identity that its journal is filed under."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from phaze_opt import __version__
from phaze_opt.errors import InputError
from phaze_opt.objective.goals import Goal
from phaze_opt.plugins import short_name
from phaze_opt.record.plain_data import to_plain
from phaze_opt.search.options import OptionValue
from phaze_opt.space.search_space import SearchSpace

_MAX_SEED = 2**32 - 1
_IDENTITY = ("strategy", "options", "goal", "seed", "batch", "pruner", "pruner_options", "num_starts")
"""What the trials depend on, beside version, scenario and space."""


class HasDigest(Protocol):
    """A scenario, as far as a search looks into it."""

    @property
    def digest(self) -> str:
        """Equal for equal scenarios."""
        ...


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """How to search; what is searched comes beside it as scenario and space.

    Attributes:
        strategy: name of a plug-in of the group ``phaze_opt.strategies``, ``file.py:Class``, or ``optuna:`` and the
            name of one of Optuna's samplers.
        options: its options by name.
        goal: what is maximised.
        num_trials: trials at most; a repeated point is a trial too, but costs nothing.
        seed: the only source of randomness, 0 to 2**32 - 1.
        batch: points asked for at a time, whatever ``jobs`` is, so that the trials do not depend on it.
        jobs: processes that evaluate; 1 evaluates in this process.
        work_dir: directory of journals, one directory per search in it.
        resume: take finished trials from the journal instead of starting afresh.
        name: for people; plays no part in the result.
        pruner: name of a plug-in of the group ``phaze_opt.pruners``; empty for none.
        pruner_options: its options by name.
        dask: evaluate on this Dask cluster (``tcp://host:port``, or ``local`` with ``jobs`` processes); empty for not.
        num_starts: starting points, drawn from the kept points by the seed and evaluated before the strategy's own.
        max_seconds: stop when evaluations and strategy have taken so long, s; for use, not for claims.
    """

    strategy: str
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    goal: Goal = Goal.THROUGHPUT
    num_trials: int = 60
    seed: int = 0
    batch: int = 4
    jobs: int = 1
    work_dir: Path = Path("phaze-opt-runs")
    resume: bool = False
    name: str = ""
    pruner: str = ""
    pruner_options: Mapping[str, OptionValue] = field(default_factory=dict)
    dask: str = ""
    num_starts: int = 0
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        """Check the counts and the seed."""
        for name in ("num_trials", "batch", "jobs"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                message = f"{value!r} must be a positive integer"
                raise InputError(message, key=name)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed <= _MAX_SEED:
            message = f"{self.seed!r} must be an integer in 0..{_MAX_SEED}"
            raise InputError(message, key="seed")
        if not 0 <= self.num_starts <= self.num_trials:
            message = f"{self.num_starts} starting points must be 0 to the {self.num_trials} trials"
            raise InputError(message, key="num_starts")
        if self.pruner_options and not self.pruner:
            message = f"{', '.join(self.pruner_options)}: options without a pruner; name one, or leave them out"
            raise InputError(message, key="pruner_options")
        if self.max_seconds is not None and not self.max_seconds > 0:
            message = f"{self.max_seconds} must be positive"
            raise InputError(message, key="max_seconds")


def search_id(config: SearchConfig, *, scenario: HasDigest, space: SearchSpace) -> str:
    """Strategy and a digest of all that the trials depend on.

    Not part of it: num_trials and max_seconds (a longer search continues a shorter one), jobs, dask, work_dir,
    resume and name.
    """
    plain = _searched(config)
    identity = {name: plain[name] for name in _IDENTITY}
    identity |= {"version": __version__, "scenario": scenario.digest, "space": space.digest}
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return f"{short_name(config.strategy)}-{digest[:16]}"


def resolved_config(config: SearchConfig, *, scenario: HasDigest, space: SearchSpace) -> dict[str, object]:
    """The configuration as plain JSON values, scenario and the size of the space included."""
    return {
        **_searched(config),
        "package_version": __version__,
        "space_size": space.size,
        "space_digest": space.digest,
        "scenario_digest": scenario.digest,
        "scenario": _plain(scenario),
    }


def _searched(config: SearchConfig) -> dict[str, object]:
    """The configuration without what says only where and how it runs."""
    plain: dict[str, object] = to_plain(SearchConfig, config)
    return {name: value for name, value in plain.items() if name not in {"work_dir", "resume", "dask"}}


def _plain(value: object) -> object:
    """A dataclass as JSON values; anything else as None."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return None
    return json.loads(json.dumps(dataclasses.asdict(value), default=str))
