"""Tuning: search spaces, the study that chooses from them, trials in processes, what came of them."""
