"""What is learned: corpora of tokens, the rows of each step, and where in them a run is."""
