"""Exit codes of every command.

A proof that ends above its tolerance (``certify``) exits with 0: its design and its bound are valid, a line on standard
error says that they are further apart than asked for, and ``is_proved`` in the JSON tells programs.
"""

EXIT_FAULT = 1
"""Something that the user cannot mend: a fault of the package or a plug-in, a solver or a database that failed."""
EXIT_BAD_INPUT = 2
EXIT_INFEASIBLE = 3
FIRST_SIGNAL = 128
"""A signal's number is added to it: 129 SIGHUP, 130 SIGINT (Ctrl-C), 143 SIGTERM."""
EXIT_INTERRUPTED = 130
