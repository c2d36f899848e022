"""Makes the folder's modules importable, in the processes that tests start too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
