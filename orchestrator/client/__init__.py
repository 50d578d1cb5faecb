"""The client of the commands that read and change records: of the store of this computer, or of a service."""
