"""Chakra execution traces: a device's operators and collectives as simulators of training networks read them."""
