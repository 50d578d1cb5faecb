"""What the driver "aws" declares of itself."""

from __future__ import annotations

import os

from orchestrator.drivers import AccountGuide, CheckOffer, Deadlines, Driver, PermissionFiles, PlaceNames

DRIVER = Driver(
    name="aws",
    vendor="AWS",
    rents="EC2 instances",
    spellings=("amazon", "ec2"),
    places=PlaceNames(
        region=r"[a-z]{2,4}(?:-[a-z]+)+-[0-9]+",
        zone=r"([a-z]{2,4}(?:-[a-z]+)+-[0-9]+)[a-z]",
        example="aws/us-east-1/us-east-1a",
    ),
    state_folders=("aws",),
    place_option="profile",
    account_variable="AWS_PROFILE",
    account_prefixes=("AWS_", "BOTO_"),
    without_accounts=(
        ("AWS_CONFIG_FILE", os.devnull),
        ("AWS_SHARED_CREDENTIALS_FILE", os.devnull),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ),
    bucket_scheme="s3",
    # AWS SDKs and Tools Reference Guide, "Settings reference" (2026).
    bucket_credentials=(
        "AWS_ACCESS_KEY_ID",
        "AWS_PROFILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ),
    bucket_login="~/.aws",
    check=CheckOffer(
        answered="region",
        more=(("--bucket s3://NAME", "bucket"), ("--region REGION", "region"), ("--accelerators NAME", "accelerator")),
        counts=True,
        files=PermissionFiles(
            flag="--print-policy",
            purposes=("user", "hosts", "trust", "server", "project-trust"),
            meaning="Print a policy for aws, limited to --bucket; check nothing.",
        ),
    ),
    # AWS CLI user guide, "Configuring IAM Identity Center authentication" and "s3 mb" (2026).
    guide=AccountGuide(
        logins=(
            ("aws configure sso", "log in, in a browser"),
            ("aws configure", "or keep an access key"),
        ),
        bucket="aws s3 mb s3://{name} --region {region}",
        page="docs/aws.md",
    ),
    # Large machines boot for minutes after EC2 reports them as running, and take up to half an hour to end
    # (packer-plugin-amazon issue 682, bottlerocket-test-system issue 911, pycloudlib issue 192, 2022 to 2024).
    deadlines=Deadlines(contact=900.0, end=2400.0),
)
