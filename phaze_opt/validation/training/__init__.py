"""Training steps: rows as plans, and the families of A100 clusters and of H100s, FSDP and TPUs."""
