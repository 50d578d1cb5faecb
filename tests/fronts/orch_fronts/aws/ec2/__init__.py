"""The pretend EC2: its API over the simulated cloud."""
