"""Models of traced graphs: a file that an export wrote, read without the framework that made it, to layers."""
