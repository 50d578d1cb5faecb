"""`orch serve`: the HTTP API and the page, over the same store and engine as the command line."""
