"""`kforge serve`: the dashboard."""
