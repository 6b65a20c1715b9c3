"""Lowering: from a traced graph to host nodes and device programs, and those programs at work."""
