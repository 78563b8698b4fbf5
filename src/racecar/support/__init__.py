"""Files, tables, progress, processes, and torch itself: what knows nothing of reverse passes."""
