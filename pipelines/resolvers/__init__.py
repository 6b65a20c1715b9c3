"""Time: spans and versions, windows over them, and what is chosen from what earlier runs made."""
