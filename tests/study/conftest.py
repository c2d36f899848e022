"""Lets tests of studies import `toy_study` by a name that worker processes can import too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "outside"))
