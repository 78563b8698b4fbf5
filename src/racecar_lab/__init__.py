"""The paper as a laboratory, on top of the library `racecar`: run its experiments, resume, compare, report."""
