"""Commands for buckets, settings and this computer: storage, pull, config, completion, serve, local."""
