"""Types of arrays by what they hold."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ShortInts = NDArray[np.int32]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]
