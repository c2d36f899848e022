"""A design point: what a search proposes."""

from __future__ import annotations

from dataclasses import dataclass, fields

from phaze_opt.errors import InputError


@dataclass(frozen=True, slots=True, order=True)
class DesignPoint:
    """One point of the joined space; ``vc_width`` equals ``tc_width`` in every designed space."""

    num_tc: int
    num_vc: int
    tc_width: int
    tc_depth: int
    vc_width: int
    glb_bytes: int
    hbm_bytes: int
    micro_batch: int

    def __post_init__(self) -> None:
        """Refuse zero and negative values, naming the field."""
        # Enumerations make points by the hundred thousand: look for the culprit only when there is one.
        sizes = (self.num_tc, self.num_vc, self.tc_width, self.tc_depth, self.vc_width, self.glb_bytes, self.hbm_bytes)
        if min(sizes) >= 1 and self.micro_batch >= 1:
            return
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 1:
                message = f"{field.name} = {value} must be a positive integer"
                raise InputError(message, key=field.name)
