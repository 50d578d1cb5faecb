"""Checkpoints in a bucket: written beside the training, whole or not there at all, found again and verified."""
