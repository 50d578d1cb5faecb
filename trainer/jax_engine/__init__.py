"""The JAX engine: the model as pure functions, one compiled step over a mesh (data, fsdp, tensor) of all devices."""
