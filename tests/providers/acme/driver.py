"""What the driver "acme" declares of itself."""

from __future__ import annotations

from orchestrator.drivers import CheckOffer, Deadlines, Driver, PlaceNames

DRIVER = Driver(
    name="acme",
    vendor="Acme",
    rents="Acme machines",
    spellings=("acmecloud",),
    places=PlaceNames(region=r"[a-z]{3}", zone=r"([a-z]{3})[0-9]", example="acme/fra/fra1"),
    place_option="tenant",
    deadlines=Deadlines(contact=600.0),
    check=CheckOffer(answered="tenant", more=()),
)
