"""What options say of silicon: dies, or the tables at 22 nm of Phaze."""

from enum import StrEnum
from typing import Any, Protocol

from phaze_opt.errors import InputError
from phaze_opt.hardware.network import Cluster, Network
from phaze_opt.hardware.presets import PHAZE_REFERENCE, TPU_V4
from phaze_opt.hardware.silicon.silicon import Silicon, link_rate, silicon_of
from phaze_opt.objective.scenario_options import ScenarioOptions, declarations
from phaze_opt.record.suggestions import parse_word


class SiliconForm(StrEnum):
    """What chips are built of: dies that could be built, or the tables at 22 nm of Phaze."""

    DIE = "die"
    PHAZE = "phaze"


class HasSilicon(Protocol):
    """A scenario or a space."""

    @property
    def silicon(self) -> Silicon | None:
        """What its chips are built of; None for the tables at 22 nm."""
        ...


class OnCluster(HasSilicon, Protocol):
    """A scenario."""

    @property
    def cluster(self) -> Cluster:
        """Devices and their network; asked for where chips are dies."""
        ...


def silicon_form(options: Any, space: str = "") -> SiliconForm:
    """The silicon that options name; else Phaze's in its published form and in its space, and dies elsewhere.

    Args:
        options: with ``silicon`` and ``published_form`` of `ScenarioOptions`.
        space: name or file of a space.

    Raises:
        InputError: a word is unknown, or the published form has other silicon.
    """
    is_published = options.published_form is not None
    if options.silicon is None:
        return SiliconForm.PHAZE if is_published or space == SiliconForm.PHAZE else SiliconForm.DIE
    named = parse_word(SiliconForm, options.silicon, source="--silicon")
    if is_published and named is not SiliconForm.PHAZE:
        message = f"'{named}' is not the published form's; leave it out, or leave out --as"
        raise InputError(message, source="--silicon")
    return named


def meant_machine(name: str, form: SiliconForm) -> str:
    """The architecture that a name means: with Phaze's tables ``tpu-v4`` is Phaze's reference, as it called it."""
    return PHAZE_REFERENCE if form is SiliconForm.PHAZE and name.strip().lower() == TPU_V4 else name


def chosen_silicon(options: Any, network: Network, *, space: str = "") -> Silicon | None:
    """What options say of dies; None for the tables at 22 nm.

    Args:
        options: with ``silicon``, ``published_form``, ``process_nm`` and ``hbm_generation`` of `ScenarioOptions`.
        network: whose links the chips drive.
        space: name or file of the space that goes with them.

    Raises:
        InputError: a word, process or generation is unknown, or is said of the tables.
    """
    known = declarations(ScenarioOptions)
    if silicon_form(options, space) is SiliconForm.PHAZE:
        for name in ("process_nm", "hbm_generation"):
            if getattr(options, name) != known[name].default:
                message = "is of dies; leave it out, or leave out --silicon phaze, --as phaze and --space phaze"
                raise InputError(message, source=known[name].flag)
        return None
    return silicon_of(options.process_nm, network, hbm_generation=options.hbm_generation)


def check_same_silicon(scenario: OnCluster, space: HasSilicon) -> None:
    """Refuse a space that was laid out for other silicon than the scenario prices, or whose dies have other links.

    Raises:
        InputError: it was.
    """
    silicon = scenario.silicon
    if silicon != space.silicon:
        message = "the space has other silicon than the scenario; give both the same"
        raise InputError(message, key="silicon")
    if silicon is None:
        return
    network = scenario.cluster.network
    if silicon.link_bytes_per_s != link_rate(network):
        message = (
            f"the dies have links of {silicon.link_bytes_per_s:g} bytes/s and the cluster's network has "
            f"{link_rate(network):g}; give silicon_of(process, network) of the same network"
        )
        raise InputError(message, key="silicon")
