"""Commands that look into a model: explain and inspect."""
