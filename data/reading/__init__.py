"""Rows from files, queries, images and frames, of whatever kind they are."""
