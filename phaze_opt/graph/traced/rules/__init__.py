"""Rules of operations, one file a family: what each does on a tape."""
