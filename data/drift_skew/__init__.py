"""Drift and skew: two data sets, feature by feature."""
