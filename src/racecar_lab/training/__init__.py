"""How a net is trained: the loop, its steps, what is random in it, and what the variants add."""
