"""Rows of two data sets compared by key."""
