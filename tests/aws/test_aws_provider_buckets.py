"""Where a bucket is, by S3's own answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orch_fronts.aws.calls import AwsAnswer, AwsCall, AwsRefusal
from orch_fronts.aws.server import AwsServer
from orchestrator.errors import CloudError
from orchestrator.providers.aws.buckets import place_of
from orchestrator.providers.aws.session import AwsSession
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Scenario

REGION = {"x-amz-bucket-region": "eu-north-1"}


class Buckets:
    """S3 as far as HeadBucket goes: one that is ours, one that may not be seen, one that there is not."""

    def handle(self, call: AwsCall) -> AwsAnswer:
        match call.path.strip("/"):
            case "ours":
                return AwsAnswer(headers=REGION)
            case "theirs":
                return AwsAnswer(status=403, headers=REGION)
            case "silent":
                return AwsAnswer()
            case _:
                raise AwsRefusal("NoSuchBucket", "there is no such bucket", 404)


@pytest.fixture(scope="module")
def session() -> Iterator[AwsSession]:
    with AwsServer(InMemory(Scenario(), ManualClock()), fronts={"s3": Buckets()}) as server:
        yield AwsSession(endpoint=server.url, tries=1)


@pytest.mark.parametrize("name", ["ours", "theirs"])
def test_a_bucket_says_where_it_is_also_when_it_may_not_be_seen(session: AwsSession, name: str) -> None:
    assert place_of(name, session).location == "eu-north-1"


@pytest.mark.parametrize("name", ["silent", "nowhere"])
def test_who_does_not_tell_is_an_error(session: AwsSession, name: str) -> None:
    with pytest.raises(CloudError, match=f"s3://{name}"):
        place_of(name, session)


def test_no_answer_is_an_error() -> None:
    with pytest.raises(CloudError, match="s3://ours"):
        place_of("ours", AwsSession(endpoint="http://127.0.0.1:9", tries=1))
