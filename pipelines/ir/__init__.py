"""The IR: a compiled pipeline as immutable values and as JSON, and all that a launch reads of it."""
