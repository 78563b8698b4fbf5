"""From a watched pass to layers d_1 … d_(n+1), and to the steps of the reverse pass."""
