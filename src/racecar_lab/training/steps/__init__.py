"""Kinds of training steps: eager, compiled, as a CUDA graph, recorded, or for many nets at once."""
