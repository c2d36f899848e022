"""The die of one chip: areas and powers by component, its edge, and which limits it breaks."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from phaze_opt.hardware.accelerator import Accelerator, table_of
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.silicon.chip_silicon import Dies
from phaze_opt.hardware.silicon.die_area import DieArea
from phaze_opt.hardware.silicon.die_constants import (
    DieProcess,
    HbmStack,
    area_constants,
    hbm_stack,
    load_die_constants,
    power_constants,
    process_of,
)
from phaze_opt.hardware.silicon.die_edge import Held, Limit, broken_limits, number_of
from phaze_opt.hardware.silicon.die_power import DiePower, voltage_v
from phaze_opt.hardware.silicon.silicon import DieModel, die_model, link_rate


@dataclass(frozen=True, slots=True)
class ComponentFigure:
    """A component's area in mm^2 or power in W."""

    name: str
    value: float


FITTED_ARRAY_SHARE = 0.23
"""The largest share of a die that arrays fill, of those that areas were fitted to (TPUv1; tests/validation/test_dies.py
works it out again)."""


@dataclass(frozen=True, slots=True)
class DieLimits:
    """What a die may come to.

    Attributes:
        reticle_mm2: its area.
        interposer_mm2: die and stacks.
        link_edge_mm: edge of its links, both short sides.
        bytes_per_byte_per_cycle: buffer over what it delivers a cycle, at least.
        w_per_mm2: power over area.
    """

    reticle_mm2: float
    interposer_mm2: float
    link_edge_mm: float
    bytes_per_byte_per_cycle: float
    w_per_mm2: float


@dataclass(frozen=True, slots=True)
class DieReport:
    """The die of one chip.

    Attributes:
        name: of the chip.
        process, stack: what it is built of.
        num_stacks: of HBM.
        num_chiplets: equal ones that the die is split into, 1 where it is whole.
        stack_places: for which its long sides have room, of all chiplets.
        areas: by component, mm^2.
        powers: at full rate, by component, W.
        length_mm, width_mm: sides, of a chiplet where it is split.
        link_edge_mm: edge that links take, and what leads to other chiplets; of each.
        package_mm2: die and stacks.
        voltage_v: at its clock.
        bytes_per_byte_per_cycle: buffer over what it delivers a cycle.
        limits: what it may come to.
        broken: a sentence for each limit that it breaks; empty if it could be built.
    """

    name: str
    process: DieProcess
    stack: HbmStack
    num_stacks: int
    num_chiplets: int
    stack_places: int
    areas: tuple[ComponentFigure, ...]
    powers: tuple[ComponentFigure, ...]
    length_mm: float
    width_mm: float
    link_edge_mm: float
    package_mm2: float
    voltage_v: float
    bytes_per_byte_per_cycle: float
    limits: DieLimits
    broken: tuple[str, ...]

    @property
    def area_mm2(self) -> float:
        """The whole die."""
        return float(sum(part.value for part in self.areas))

    @property
    def power_w(self) -> float:
        """The whole device at full rate."""
        return float(sum(part.value for part in self.powers))

    @property
    def array_share(self) -> float:
        """Share of the die that arrays fill."""
        return next((part.value for part in self.areas if part.name == "arrays"), 0.0) / self.area_mm2

    @property
    def w_per_mm2(self) -> float:
        """Power over area."""
        return self.power_w / self.area_mm2


def die_report(
    accelerator: Accelerator,
    network: Network,
    *,
    nanometres: float = 7,
    hbm_generation: str = "hbm2e",
    constants: Constants | None = None,
    die_constants: Constants | None = None,
    fitted: FittedConstants | None = None,
) -> DieReport:
    """The die of a chip.

    Args:
        accelerator: the chip.
        network: whose links it drives.
        nanometres: of its process, 28 to 3.
        hbm_generation: of its stacks; as many as hold its capacity and reach its bandwidth.
        constants: sizing of L2 buffers; the package's own by default.
        die_constants: constants of the die model; the package's own by default.
        fitted: fitted constants; the package's own by default.

    Raises:
        InputError: a process or a generation of HBM that the model does not know.
    """
    known = load_die_constants() if die_constants is None else die_constants
    model = DieModel(
        area=area_constants(fitted, known=known),
        power=power_constants(known),
        process=process_of(nanometres, known=known),
        stack=hbm_stack(hbm_generation, known=known),
        link_bytes_per_s=link_rate(network),
        limits=known,
    )
    return _report(accelerator, model, load_constants() if constants is None else constants)


def die_of(accelerator: Accelerator, constants: Constants) -> DieReport:
    """The die of a chip under constants that have a die (`silicon.with_die`)."""
    return _report(accelerator, die_model(constants), constants)


def _report(accelerator: Accelerator, model: DieModel, sizing: Constants) -> DieReport:
    chips = table_of(accelerator)
    dies = Dies.by(model, chips, sizing)
    edge, limits = dies.edge, dies.limits
    chiplets = int(number_of(dies.columns.num_chiplets))
    return DieReport(
        name=accelerator.name,
        process=model.process,
        stack=model.stack,
        num_stacks=int(number_of(dies.columns.hbm_stacks)),
        num_chiplets=chiplets,
        stack_places=chiplets * int(number_of(edge.stack_places)),
        areas=_figures(dies.area),
        powers=_figures(dies.power),
        length_mm=number_of(edge.length_mm),
        width_mm=number_of(edge.width_mm),
        link_edge_mm=number_of(edge.link_edge_mm),
        package_mm2=number_of(edge.package_mm2),
        voltage_v=number_of(voltage_v(chips.clock_hz, model.power)),
        bytes_per_byte_per_cycle=number_of(limits[Limit.BANKS].has),
        limits=_allowed(limits),
        broken=broken_limits(limits),
    )


def die_to_json(report: DieReport) -> dict[str, Any]:
    """A die as JSON; areas and powers by component."""
    same = ("length_mm", "width_mm", "link_edge_mm", "package_mm2", "voltage_v", "bytes_per_byte_per_cycle")
    return {
        "process": report.process.name,
        "hbm_generation": report.stack.generation.value,
        "num_stacks": report.num_stacks,
        **({"num_chiplets": report.num_chiplets} if report.num_chiplets > 1 else {}),
        "stack_places": report.stack_places,
        "area_mm2": report.area_mm2,
        "power_w": report.power_w,
        "w_per_mm2": report.w_per_mm2,
        "areas_mm2": {part.name: part.value for part in report.areas},
        "powers_w": {part.name: part.value for part in report.powers},
        **{name: getattr(report, name) for name in same},
        "limits": asdict(report.limits),
        "broken": list(report.broken),
    }


def _allowed(limits: Mapping[Limit, Held]) -> DieLimits:
    return DieLimits(
        reticle_mm2=number_of(limits[Limit.RETICLE].allowed),
        interposer_mm2=number_of(limits[Limit.INTERPOSER].allowed),
        link_edge_mm=number_of(limits[Limit.LINK_EDGE].allowed),
        bytes_per_byte_per_cycle=number_of(limits[Limit.BANKS].allowed),
        w_per_mm2=number_of(limits[Limit.COOLING].allowed),
    )


def _figures(parts: DieArea | DiePower) -> tuple[ComponentFigure, ...]:
    """By component; a whole die has nothing between chiplets."""
    figures = (ComponentFigure(each.name, number_of(getattr(parts, each.name))) for each in fields(parts))
    return tuple(figure for figure in figures if figure.value or figure.name != "die_to_die")
