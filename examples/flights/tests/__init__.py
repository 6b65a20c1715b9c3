"""What the project promises; `pytest` in its folder runs it."""
