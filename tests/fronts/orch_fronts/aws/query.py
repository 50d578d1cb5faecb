"""The query protocol of IAM and STS: what comes in is flat, what goes out is XML whose lists are <member>s.

Source: the models of both services in botocore 1.44: neither has flattened lists or maps in what is served here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast
from xml.sax.saxutils import escape

from orch_fronts.aws.calls import AwsAnswer, AwsCall
from orch_fronts.aws.refusals import REQUEST_ID

_SPACES = {"iam": "https://iam.amazonaws.com/doc/2010-05-08/", "sts": "https://sts.amazonaws.com/doc/2011-06-15/"}


def answer(call: AwsCall, result: Mapping[str, Any] | None = None) -> AwsAnswer:
    """result: None for a call that says nothing."""
    name = call.operation
    inside = "" if result is None else f"<{name}Result>{_xml(result)}</{name}Result>"
    metadata = f"<ResponseMetadata><RequestId>{REQUEST_ID}</RequestId></ResponseMetadata>"
    text = f'<{name}Response xmlns="{_SPACES[call.service]}">{inside}{metadata}</{name}Response>'
    return AwsAnswer(body=text.encode())


def members(params: Mapping[str, Any], name: str) -> list[str]:
    """A list of texts: NAME.member.1, NAME.member.2 and so on."""
    pattern = re.compile(rf"{re.escape(name)}\.member\.(\d+)")
    found = {int(match[1]): str(value) for key, value in params.items() if (match := pattern.fullmatch(key))}
    return [found[number] for number in sorted(found)]


def _xml(value: Any) -> str:
    if isinstance(value, Mapping):
        fields = cast(Mapping[str, Any], value)
        return "".join(f"<{name}>{_xml(each)}</{name}>" for name, each in fields.items())
    if isinstance(value, list):
        return "".join(f"<member>{_xml(each)}</member>" for each in cast(Sequence[Any], value))
    return escape(str(value).lower() if isinstance(value, bool) else str(value))
