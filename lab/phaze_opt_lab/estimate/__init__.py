"""Times of kernels: tiles in waves, fused attention and experts, exchanges of tokens, fp32 libraries."""
