"""`AnyModel`: every kind of `Workload` that scenarios, and so records and certificates, may hold."""

from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.transformer import TransformerSpec

AnyModel = ModelSpec | TransformerSpec
"""What `objective.scenario.Scenario.models` is read as: a further kind joins with ``|``."""
