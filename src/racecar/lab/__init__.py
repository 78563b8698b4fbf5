"""The paper as a laboratory: run its experiments, resume, compare, report."""
