"""A user's own things by name: functions, their source closure, input files, secrets."""
