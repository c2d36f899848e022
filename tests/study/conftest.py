"""Lets tests of studies import what is in `outside`, as worker processes do."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "outside"))
