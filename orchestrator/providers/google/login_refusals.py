"""What gcloud prints when IAM refuses the connection to a host, and which role is missing. Pure."""

from __future__ import annotations

import re

from orchestrator.remote.iam_refusals import LoginRefusal

_ROLE = "roles/iap.tunnelResourceAccessor"
_COMMAND = "an administrator runs: gcloud projects add-iam-policy-binding PROJECT --member=user:THEIR-ADDRESS --role={}"

REFUSALS = (
    # "Error while connecting [4033: 'not authorized']." of gcloud; code 4033 is a missing permission, and 4003 a host
    # that does not answer (cloud.google.com/iap/docs/faq, "error codes", 2026; gcloud 528, start-iap-tunnel).
    LoginRefusal(
        pattern=re.compile(r"\[?4033: '?not authorized"), missing=f"missing: {_ROLE}", command=_COMMAND.format(_ROLE)
    ),
)
