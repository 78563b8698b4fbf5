"""The reverse pass of a plan with a user's settings, and the terms of the loss."""
