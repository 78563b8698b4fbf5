"""Time training steps of a net, plain and with the reverse pass, side by side in one run."""
