"""A refusal in the form of each protocol that AWS speaks (the AWS SDKs' "protocol" of each service, botocore 1.44)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from xml.sax.saxutils import escape

from orch_fronts.aws.calls import JSON_1_1, XML, AwsAnswer, AwsCall, AwsRefusal

REQUEST_ID = "00000000-0000-4000-8000-000000000000"


def in_form(service: str, refusal: AwsRefusal) -> AwsAnswer:
    """A service that is not in the table is taken for one that speaks JSON."""
    return _FORMS.get(service, _json)(refusal)


def unknown_caller(call: AwsCall) -> AwsAnswer:
    """Refuse a request without the signature of a known key ("Error codes" of EC2, of S3, and of the common errors)."""
    mismatch = "The request signature we calculated does not match the signature you provided."
    refusal = AwsRefusal("InvalidSignatureException", mismatch, 400)
    if "authorization" not in call.headers:
        refusal = AwsRefusal("AccessDenied", "Access Denied", 403)
    elif call.service == "ec2":
        refusal = AwsRefusal("AuthFailure", "AWS was not able to validate the provided access credentials", 401)
    elif call.service in _FORMS:
        refusal = AwsRefusal("SignatureDoesNotMatch", mismatch, 403)
    return in_form(call.service, refusal)


def _ec2(refusal: AwsRefusal) -> AwsAnswer:
    error = f"<Error><Code>{escape(refusal.code)}</Code><Message>{escape(refusal.words)}</Message></Error>"
    text = f"<Response><Errors>{error}</Errors><RequestID>{REQUEST_ID}</RequestID></Response>"
    return _xml(refusal, text)


def _query(refusal: AwsRefusal) -> AwsAnswer:
    fault = "Sender" if refusal.http < 500 else "Receiver"
    error = f"<Code>{escape(refusal.code)}</Code><Message>{escape(refusal.words)}</Message>"
    text = (
        f"<ErrorResponse><Error><Type>{fault}</Type>{error}</Error><RequestId>{REQUEST_ID}</RequestId></ErrorResponse>"
    )
    return _xml(refusal, text)


def _s3(refusal: AwsRefusal) -> AwsAnswer:
    error = f"<Code>{escape(refusal.code)}</Code><Message>{escape(refusal.words)}</Message>"
    return _xml(refusal, f"<Error>{error}<RequestId>{REQUEST_ID}</RequestId></Error>")


def _json(refusal: AwsRefusal) -> AwsAnswer:
    value = {"__type": refusal.code, "message": refusal.words, "Message": refusal.words}
    return AwsAnswer(
        status=refusal.http, body=json.dumps(value).encode(), kind=JSON_1_1, headers={"x-amzn-RequestId": REQUEST_ID}
    )


def _xml(refusal: AwsRefusal, text: str) -> AwsAnswer:
    return AwsAnswer(status=refusal.http, body=f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode(), kind=XML)


_FORMS: Mapping[str, Callable[[AwsRefusal], AwsAnswer]] = {"ec2": _ec2, "iam": _query, "sts": _query, "s3": _s3}
