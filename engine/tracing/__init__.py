"""Tracing: a user's function, called once on symbolic columns, becomes one jaxpr."""
