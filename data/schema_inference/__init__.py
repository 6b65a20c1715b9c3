"""Schemas proposed from data: inference, and updates as patches."""
