"""What the reverse pass costs: step times, memory and their floors, side by side in one run."""
