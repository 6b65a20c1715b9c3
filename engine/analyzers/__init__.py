"""Analyzers: mergeable states of full passes over the training data."""
