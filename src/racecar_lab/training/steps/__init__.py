"""How a step is done: operation by operation, compiled, as a CUDA graph, recorded, or for many nets at once."""
