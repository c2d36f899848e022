"""Exit codes of every command.

A proof that ends above its tolerance (``certify``) exits with 0: its design and its bound are valid, a line on standard
error says that they are further apart than asked for, and ``is_proved`` in the JSON tells programs.
"""

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INFEASIBLE = 3
EXIT_INTERRUPTED = 130
