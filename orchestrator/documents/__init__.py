"""What people look at: runs, their curves and costs, clusters and their topology, read from the store and the buckets.

The command line and the service show the same values, and write the same JSON documents.
"""
