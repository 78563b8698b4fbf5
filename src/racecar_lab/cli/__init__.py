"""Commands of the laboratory: list, run, sweep, search, report, film, data."""
