"""Scripts for the hosts, made from the templates: setup, run, copy. Values in, text out."""
