"""What every test of the laboratory begins with: the examples that Hypothesis draws, one thread a process."""

import os

from hypothesis import settings

os.environ["PHAZE_OPT_QUIET"] = "1"
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("same")
