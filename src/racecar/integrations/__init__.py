"""Racecar training in Lightning, transformers and TensorBoard; import the module that you need by its name."""
