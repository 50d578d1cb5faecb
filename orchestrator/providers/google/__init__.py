"""TPU VMs by the Cloud TPU API, version 2. docs/google.md tells how it is used and what each error means."""
