"""Training of networks: the loop, kinds of steps, batches and other random draws, recipes and variants."""
