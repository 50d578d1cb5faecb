"""Notifications: which events people hear of, as which messages, and the channels that send them."""
