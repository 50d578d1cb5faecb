"""What the driver "gcp" declares of itself."""

from __future__ import annotations

from orchestrator.drivers import AccountGuide, CheckOffer, Driver, PermissionFiles, PlaceNames

DRIVER = Driver(
    name="gcp",
    vendor="Google",
    rents="Google machines",
    spellings=("google",),
    places=PlaceNames(
        region=r"[a-z]+(?:-[a-z]+)+[0-9]+",
        zone=r"([a-z]+(?:-[a-z]+)+[0-9]+)-(?:ai[0-9]+)?[a-z]",
        example="gcp/us-west4/us-west4-a",
    ),
    state_folders=("google", "google-compute"),
    place_option="project",
    account_variable="GOOGLE_APPLICATION_CREDENTIALS",
    account_prefixes=("GOOGLE_", "CLOUDSDK_"),
    without_accounts=(
        ("CLOUDSDK_CONFIG", "{folder}/no-google"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "{folder}/no-google"),
        ("NO_GCE_CHECK", "true"),
    ),
    bucket_scheme="gs",
    # Google Cloud documentation, "How Application Default Credentials works"; gcloud topic configurations (2026).
    bucket_credentials=("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE"),
    bucket_login="~/.config/gcloud",
    check=CheckOffer(
        answered="project",
        more=(("--bucket gs://NAME", "bucket"), ("--zone ZONE", "zone"), ("--accelerators NAME", "accelerator")),
        files=PermissionFiles(
            flag="--print-role", purposes=("orch", "hosts"), meaning="Print a role file for gcp; check nothing."
        ),
    ),
    # Google Cloud documentation, "Set up Application Default Credentials" and "gcloud storage buckets create" (2026).
    guide=AccountGuide(
        logins=(
            ("gcloud auth application-default login", "log in, in a browser"),
            ("gcloud config set project PROJECT", "choose the project that pays"),
        ),
        bucket="gcloud storage buckets create gs://{name} --location={region} --uniform-bucket-level-access",
        page="docs/google.md",
    ),
)
