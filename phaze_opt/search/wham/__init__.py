"""WHAM's critical-path search, carried over to designs whose operators may be spread over all cores."""
