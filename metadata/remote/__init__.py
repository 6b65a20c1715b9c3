"""A store that is elsewhere: what is asked of it and answered as JSON, who asks, and who answers."""
