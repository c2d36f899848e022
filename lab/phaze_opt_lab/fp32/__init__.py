"""fp32 operators of many GPUs, and whole models made of them."""
