"""What `racecar bench` has for nets of the laboratory: nets by name, their steps by hand, growth."""
