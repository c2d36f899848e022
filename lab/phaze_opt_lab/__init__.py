"""Models of GPU kernels that price no answer of a command yet, with their measurements, constants and ranges."""
