"""The commands ``racecar explain`` and ``racecar inspect``."""
