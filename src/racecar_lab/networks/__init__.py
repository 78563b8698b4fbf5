"""The paper's architectures, in plain torch."""
