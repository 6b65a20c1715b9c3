"""Graphs as values: typed tensors and nodes, and what can be said of them without running them."""
