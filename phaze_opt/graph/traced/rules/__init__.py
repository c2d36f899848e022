"""Rules of operations, a file a family: what each does on a tape."""
