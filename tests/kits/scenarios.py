"""Small scenarios that the tests of this folder share."""

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.scenario import Scenario
from phaze_opt.space.axes import Axes
from phaze_opt.units import gib_to_bytes, mib_to_bytes
from phaze_opt.workload.config import load_model


def make_scenario(*models: str, devices: int = 16, network: str = "two-level", **changes: object) -> Scenario:
    names = models or ("tiny",)
    cluster = Cluster(devices, load_network(network, num_devices=devices, constants=load_constants()))
    defaults: dict[str, object] = {"global_batch": 64, "tensor_parallel": (1, 2)}
    return Scenario(models=tuple(load_model(name) for name in names), cluster=cluster, **(defaults | changes))


def make_point(**changes: int) -> DesignPoint:
    defaults = {
        "num_tc": 8,
        "num_vc": 16,
        "tc_width": 64,
        "tc_depth": 64,
        "vc_width": 64,
        "glb_bytes": mib_to_bytes(16),
        "hbm_bytes": gib_to_bytes(32),
        "micro_batch": 4,
    }
    return DesignPoint(**(defaults | changes))


def make_axes(glb_mb: tuple[int, ...], hbm_gb: tuple[int, ...], **axes: tuple[int, ...]) -> Axes:
    sizes = {"glb_bytes": tuple(map(mib_to_bytes, glb_mb)), "hbm_bytes": tuple(map(gib_to_bytes, hbm_gb))}
    return Axes(**({"vc_width": ()} | sizes | axes))
