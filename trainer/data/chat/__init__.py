"""Conversations: forms of rows, templates, and what is trained on."""
