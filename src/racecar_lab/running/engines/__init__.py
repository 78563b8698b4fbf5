"""Engines, which are ways to get jobs done: processes on this machine, many small nets as one, a Ray cluster."""
