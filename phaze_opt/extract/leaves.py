"""Modules that are recorded as one operation, as what they run is a loop over the sequence or has no other name."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from phaze_opt.extract.own_operations import own_operations

Forward = Callable[..., Any]


def _mamba_mixer(module: Any, hidden_states: Any, *_: Any, **__: Any) -> Any:
    """A Mamba-1 mixer without biases of its projections, which no published one has."""
    return own_operations().mamba_mixer(
        hidden_states,
        module.in_proj.weight,
        module.conv1d.weight,
        module.conv1d.bias,
        module.x_proj.weight,
        module.dt_proj.weight,
        module.dt_proj.bias,
        module.A_log,
        module.D,
        module.out_proj.weight,
    )


LEAVES: Mapping[str, Forward] = {"transformers.models.mamba.modeling_mamba.MambaMixer": _mamba_mixer}
"""What runs in place of a module, by its class."""


@contextmanager
def leaves_for(module: Any) -> Iterator[None]:
    """Let the leaves of a model run as one operation while the block lasts."""
    replaced = []
    for each in module.modules():
        forward = LEAVES.get(f"{type(each).__module__}.{type(each).__qualname__}")
        if forward is not None:
            each.forward = forward.__get__(each)
            replaced.append(each)
    try:
        yield
    finally:
        for each in replaced:
            del each.forward
