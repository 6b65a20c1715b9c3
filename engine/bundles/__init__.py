"""Bundles: saved graphs, loaded and run without the code that made them."""
