"""Search strategies and the ask-and-tell loop."""
