"""How a product with a weight is split over a tensor-parallel group."""

from enum import StrEnum


class ShardedAs(StrEnum):
    """What of the weight a device has a share of."""

    COLUMNS = "columns"
    ROWS = "rows"
    VOCABULARY = "vocabulary"
