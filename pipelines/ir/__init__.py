"""The compiled form: what a pipeline is once it is built, and all that a launch reads."""
