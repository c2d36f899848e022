"""Use cases: a module a command, from a request to a result; nothing is printed here."""
