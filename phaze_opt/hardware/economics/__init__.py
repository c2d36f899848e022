"""What devices cost to make and to run, in money and in CO2."""
