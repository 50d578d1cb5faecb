"""Tokenizers, their special tokens, and the marks of what is trained on."""
