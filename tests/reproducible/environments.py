"""Environments in which every command must say the same.

Kernels choose other code for products of matrices (OpenBLAS), for vectors (NumPy) or for compiled loops (numba):
numbers may differ in their last digits, choices may not. Surroundings choose no arithmetic: not a byte may differ.
"""

KERNELS = {
    "haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "skylakex": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "prescott": {"OPENBLAS_CORETYPE": "Prescott"},
    "plain-numpy": {"NPY_DISABLE_CPU_FEATURES": "X86_V4 X86_V3 AVX512_ICL"},
    "oldest": {"OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "X86_V4 X86_V3 AVX512_ICL",
               "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F,-FMA4"},
    "generic-numba": {"NUMBA_CPU_NAME": "generic"},
}  # fmt: skip
SURROUNDINGS = {
    "one-thread": dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"),
    "two-threads": dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "2"),
    "other-locale": {"LC_ALL": "C", "LANG": "C", "LANGUAGE": "tr"},
    "other-hashes": {"PYTHONHASHSEED": "7"},
}
PLAIN = {"PYTHONHASHSEED": "0"}
