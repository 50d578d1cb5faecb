"""The durable memory: clusters, intents, jobs, attempts, leases, events. Writes: store.py. Light reads: read.py."""
