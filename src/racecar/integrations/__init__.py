"""Racecar training inside of other people's training loops; each is imported by name, and imports its library then."""
