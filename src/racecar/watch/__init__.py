"""Watch one forward pass: its calls, what depends on what, and whose weight each one is."""
