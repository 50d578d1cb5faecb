"""The provider core: one journaled state machine for the slices of all clouds. See docs/design.md, "Provider core"."""
