"""The die of a chip: its area by component, its edge, its power at full rate, from 28 to 3 nm (docs/silicon.md)."""
