"""Servers that speak the protocols of Google Cloud and AWS over orch's simulated cloud; orch never imports them."""
