"""``python -m phaze_opt``."""

import os
import sys

import phaze_opt

# Python puts the working folder first: no module there stands for one that this package imports.
if not sys.flags.safe_path and phaze_opt.__path__[0] != f"{sys.path[0]}{os.sep}phaze_opt":
    del sys.path[0]

from phaze_opt.cli.entry import main

main()
