"""Checkpoints in a bucket: written beside the training, complete or absent, found again and verified."""
