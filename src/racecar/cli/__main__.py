"""``python -m racecar.cli``."""

from racecar.cli import main

main()
