"""Whether two outcomes of one command are the same: choices exactly, numbers to 1e-12 or to the byte."""

import math
import re

VOLATILE = re.compile(r"(^|_)(wall_s|charged_s|overhead_s|seconds_to|crc32|digest)")
"""Keys that hold times of the clock, or digests of what holds such."""
CLOCKED = re.compile(r"\d[\d.]* s\b")
"""Times of the clock in sentences."""
RELATIVE = 1e-12
ABSOLUTE = 1e-15
"""Gaps and other differences of equal numbers: rounding of numbers near 1."""


def differences(expected, found, *, is_exact, place=""):
    """Sentences about where two values of JSON differ, volatile keys left out."""
    if isinstance(expected, dict) and isinstance(found, dict):
        if list(expected) != list(found):
            return [f"{place}: keys {list(expected)} and {list(found)}"]
        return [
            sentence
            for key in expected
            if not VOLATILE.search(key)
            for sentence in differences(expected[key], found[key], is_exact=is_exact, place=f"{place}/{key}")
        ]
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return [f"{place}: {len(expected)} and {len(found)} entries"]
        return [
            sentence
            for index, (one, other) in enumerate(zip(expected, found, strict=True))
            for sentence in differences(one, other, is_exact=is_exact, place=f"{place}/{index}")
        ]
    if isinstance(expected, str) and isinstance(found, str):
        expected, found = CLOCKED.sub("a while", expected), CLOCKED.sub("a while", found)
    same = expected == found or (not is_exact and _is_near(expected, found))
    return [] if same and type(expected) is type(found) else [f"{place}: {expected!r} and {found!r}"]


def _is_near(expected, found):
    both = isinstance(expected, float) and isinstance(found, float)
    return both and math.isclose(expected, found, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
