"""How things are written down and read back: journals, locks, whole files, workers, addresses, files with places."""
