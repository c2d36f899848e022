"""Per-model against common designs: chip tables, prices, and the best sets of k chips."""
