"""Four questions to the weather at three airports: a number, a class, several labels, a ranking."""
