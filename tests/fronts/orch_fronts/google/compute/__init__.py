"""Compute Engine over the simulated cloud: the part of compute v1 that TPU VMs, firewall rules and gcloud need."""
