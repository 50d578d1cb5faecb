"""The options of EC2, each declared once (orchestrator/options.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from orchestrator.options import Allowed, DriverOptions, arg, decode_options, derived, setting
from orchestrator.slices import Candidate

LONGEST_HOURS = 24 * 366
Framework: TypeAlias = Literal["", "torch", "jax"]
_ACCESS = "there are eips, eip, public, ssm, private, jump"
_NAME = "AWS has no such name"


def _named(pattern: str, step: str) -> Allowed:
    return Allowed(pattern=pattern, why=_NAME, step=step)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsOptions:
    """What a task and the configuration ask of EC2. A text is "" where the provider's default holds."""

    profile: str = setting(
        "", "profile of the AWS configuration", "a name", config=True,
        allowed=_named(r"[A-Za-z0-9_.@/+][A-Za-z0-9 _.@/+-]{0,127}", "aws configure list-profiles"),
        flag="NAME", flag_help="AWS profile instead of the configured one",
        local_use="this profile of your AWS configuration is used, with its credentials",
    )  # fmt: skip
    role_arn: str = setting(
        "", "role that is assumed for every call", "an ARN, arn:aws:iam::…", config=True, identity=True,
        allowed=_named(
            r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]{1,512}",
            "aws iam list-roles   lists them, such as arn:aws:iam::123456789012:role/orch",
        ),
        flag="ARN", flag_help="Role to assume instead of the configured one",
        local_use="this role is assumed with the AWS credentials of this computer",
    )  # fmt: skip
    external_id: str = setting(
        "", "external id that the trust policy of the role asks for", config=True, identity=True,
        allowed=Allowed(  # STS API reference, AssumeRole, read November 2026
            pattern=r"[A-Za-z0-9_+=,.@:/-]{2,1224}", why="letters, digits and _+=,.@:/- are allowed, 2 to 1224 of them",
            step="take it from the role's trust policy: aws iam get-role",
        ),
    )  # fmt: skip
    subnets: tuple[str, ...] = setting(
        (), "subnets to try in order, all of one region", "an id, subnet-…", config=True, carried=False
    )
    security_group: str = setting(
        "", "security group of the machines; created if absent", "an id, sg-…", config=True,
        allowed=_named(
            r"sg-[0-9a-f]{8,17}", "aws ec2 describe-security-groups   lists them, such as sg-0123456789abcdef0"
        ),
    )  # fmt: skip
    instance_profile: str = setting(
        "", "IAM instance profile of the machines", "a name", config=True,
        allowed=_named(r"[a-zA-Z0-9_+=,.@-]{1,128}", "aws iam list-instance-profiles   lists their names"),
        flag="NAME", flag_help="Instance profile of the hosts, instead of the configured one",
    )  # fmt: skip
    access: Literal["", "eips", "eip", "public", "ssm", "private", "jump"] = setting(
        "", "SSH access to the machines", config=True, allowed=Allowed(why=_ACCESS, step="access: ssm")
    )
    jump: str = setting("", "jump host, for access: jump", "user@host:port", config=True, hops=True)
    ssh_cidr: str = setting(
        "", "who may reach port 22; your own address if absent", "a range such as 203.0.113.7/32", config=True
    )
    user: str = setting(
        "", "login name of the image, ubuntu if absent", "a user name", config=True, unset="ubuntu",
        allowed=_named(r"[a-z_][a-z0-9_-]{0,31}", "a login name of the image: ubuntu"),
    )  # fmt: skip
    provisioning: Literal["", "capacity-block"] = arg(
        "", "how to get capacity other than on demand or spot", carried=False
    )
    reservation: str = arg("", "take it from there", "a reservation's name or id, or - for any", carried=False)
    subnet: str = derived(
        "",
        allowed=_named(
            r"subnet-[0-9a-f]{8,17}", "aws ec2 describe-subnets   lists them, such as subnet-0123456789abcdef0"
        ),
    )
    image: str = derived("")
    placement_group: str = arg(
        "", "EC2: an existing group; else orch creates one for several hosts", "a name",
        allowed=_named(r"[A-Za-z0-9_][ -~]{0,254}", "aws ec2 describe-placement-groups   lists their names"),
    )  # fmt: skip
    framework: Literal["", "torch", "jax"] = arg("", "EC2: what `run` trains with; decides image")
    network: Literal["", "standard", "best"] = derived(
        "", allowed=Allowed(why="it is standard or best", step="network_tier: best")
    )
    max_hours: float | None = derived(
        None,
        allowed=Allowed(
            least=0.001,
            most=LONGEST_HOURS,
            why=f"a number of hours above 0, at most {LONGEST_HOURS:,}",
            step="max_hours: 6",
        ),
    )
    on_idle: Literal["", "stop"] = derived("", allowed=Allowed(why="it is stop, or absent", step="autostop: 30"))


OPTIONS = DriverOptions(kind=AwsOptions, title="Amazon EC2", owner="EC2 has")


def read_options(candidate: Candidate) -> AwsOptions:
    """Return the options of a candidate.

    Raises:
        UserError: There is no such option, or no such value of it.
    """
    return cast(AwsOptions, decode_options(AwsOptions, OPTIONS.owner, candidate.details))
