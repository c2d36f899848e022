"""Controlled studies: many searches under one plan, judged together."""
