"""What of a traced model a tensor-parallel group shares, what every device computes, and why."""

from collections.abc import Sequence

from phaze_opt.graph.traced.device_sizes import WeightShare
from phaze_opt.graph.traced.traced_workload import TracedWorkload
from phaze_opt.report.table import Fields, TableContent, table_of, words
from phaze_opt.report.text import format_share
from phaze_opt.workload.workload import Workload


def weights_shared(model: Workload, degree: int) -> tuple[WeightShare, ...]:
    """Weights of a traced model that is sharded; none of others, whose configs say it all."""
    return model.weight_shares(degree) if degree > 1 and isinstance(model, TracedWorkload) else ()


def sharding_table(weights: Sequence[WeightShare], degree: int) -> TableContent:
    """A line for every product with a weight, and every table, of every kind of layer."""
    fields: Fields[WeightShare] = (
        words("layer", lambda weight: weight.layer),
        words("module", lambda weight: weight.module or "-"),
        words("split", lambda weight: str(weight.split or "every device")),
        words("of it", lambda weight: format_share(weight.share)),
        words("why", lambda weight: weight.reason),
    )
    return table_of(f"Weights on each of {degree} devices", fields, weights)
