"""Files, tables, progress, processes: what knows nothing of networks."""
