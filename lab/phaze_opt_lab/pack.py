"""What the entry point ``phaze_opt.families`` names: families, measurements, constants and ranges of the laboratory."""

from pathlib import Path

from phaze_opt.validation.packs import FamilyPack
from phaze_opt_lab.expert_exchange import EXPERT_EXCHANGE
from phaze_opt_lab.fp32.family import FP32_OPERATORS
from phaze_opt_lab.fp32.models import FP32_MODELS
from phaze_opt_lab.modern.family import MODERN
from phaze_opt_lab.modern.shapes import shape_notes
from phaze_opt_lab.rooflines import ROOFLINES

PACK = FamilyPack(
    families=(EXPERT_EXCHANGE, MODERN, FP32_OPERATORS, FP32_MODELS),
    folder=Path(__file__).parent,
    rooflines=ROOFLINES,
    notes=shape_notes,
)
