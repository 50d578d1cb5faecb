"""The engine for devices behind torch_xla 2.9, its last release: older TPU set-ups, and Trn1 with Neuron 2.28."""
