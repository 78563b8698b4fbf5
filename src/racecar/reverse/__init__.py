"""Run a plan backwards, with the settings of a user worked in, and sum the terms of the loss."""
