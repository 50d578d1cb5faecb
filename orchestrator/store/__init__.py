"""The store: clusters, intents, jobs, attempts, pipelines, leases, events. Writes: store.py. Light reads: read.py."""
