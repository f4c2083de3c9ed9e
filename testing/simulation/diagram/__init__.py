"""A run as a space-time diagram: what a recorder hears of it, and the page that shows it."""
