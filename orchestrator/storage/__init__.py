"""Buckets: gs://, s3:// and file:// behind one contract, with sync, conditional writes and checkpoint reading."""
