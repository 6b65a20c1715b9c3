"""Unbounded input as micro-spans."""
