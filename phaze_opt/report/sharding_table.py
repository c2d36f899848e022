"""What of a traced model a tensor-parallel group shares, what every device computes, and why."""

from collections.abc import Sequence

from phaze_opt.graph.traced.traced_workload import ShardedProduct, TracedWorkload
from phaze_opt.report.table import Fields, TableContent, table_of, words
from phaze_opt.workload.workload import Workload


def products_shared(model: Workload, degree: int) -> tuple[ShardedProduct, ...]:
    """Products with weights of a traced model that is sharded; none of others, whose configs say it all."""
    return model.sharded_products() if degree > 1 and isinstance(model, TracedWorkload) else ()


def sharding_table(products: Sequence[ShardedProduct], degree: int) -> TableContent:
    """A line for every product with a weight of every kind of layer."""
    fields: Fields[ShardedProduct] = (
        words("layer", lambda product: product.layer),
        words("module", lambda product: product.module or "-"),
        words("split", lambda product: str(product.split or "every device")),
        words("why not", lambda product: product.reason),
    )
    return table_of(f"Products on {degree} devices", fields, products)
