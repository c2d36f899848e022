"""Area, power and frame rates of chips against the tables of designed ones; nothing is fitted."""
