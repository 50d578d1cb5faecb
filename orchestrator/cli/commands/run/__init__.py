"""Commands that run something: launch, train, exec, resume, watch."""
