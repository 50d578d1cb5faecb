"""Training data: corpora of tokens, the rows of each step, and the position of a run in them."""
