"""Why a model says what it says: which columns matter, and how its predictions move with each."""
