"""Which image, by which request, and what drives the accelerator with it."""

from __future__ import annotations

import jmespath
import pytest
from aws_cases import candidate

from orch_fronts.aws.images import by_parameter
from orchestrator.errors import UserError
from orchestrator.providers.aws import images
from orchestrator.providers.aws.images import GPU, GPU_TORCH, JAX_NEURON, PLAIN, choose
from orchestrator.providers.aws.planner import PLANNER
from orchestrator.providers.aws.requests import Place
from orchestrator.providers.aws.unknowns import IMAGE, ROOT_DEVICE

PLACE = Place("us-east-1")


@pytest.mark.parametrize(
    ("instance_type", "framework", "parameter", "name", "backend"),
    [
        ("p5.48xlarge", "", GPU, "", ""),
        ("p5.48xlarge", "torch", GPU_TORCH, "", ""),
        ("p6-b200.48xlarge", "torch", GPU_TORCH, "", ""),
        ("p6-b300.48xlarge", "torch", GPU, "", ""),  # no image of AWS's has PyTorch for it
        ("g6e.12xlarge", "torch", GPU_TORCH, "", ""),
        ("p9.48xlarge", "torch", GPU, "", ""),
        ("p5.48xlarge", "jax", GPU, "", "jax"),
        ("g6.xlarge", "", GPU, "", ""),
        ("p9.48xlarge", "", GPU, "", ""),
        ("trn1.32xlarge", "", "", "PyTorch 2.9", "neuron"),
        ("trn1n.32xlarge", "torch", "", "PyTorch 2.9", "neuron"),
        ("inf2.48xlarge", "", "", "PyTorch 2.9", "neuron"),
        ("trn1.2xlarge", "jax", JAX_NEURON, "", "jax"),
        ("trn2.48xlarge", "torch", "", "torch-neuronx 2.14", "neuron"),
        ("trn2u.48xlarge", "", "", "torch-neuronx 2.14", "neuron"),
        ("trn3.48xlarge", "", "", "torch-neuronx 2.14", "neuron"),
        ("trn2.48xlarge", "jax", JAX_NEURON, "", "jax"),
        ("m7i.large", "", PLAIN, "", ""),
    ],
)
def test_image_goes_by_chip_and_framework(
    instance_type: str, framework: str, parameter: str, name: str, backend: str
) -> None:
    image = choose(instance_type, framework, "")
    assert (image.parameter, image.backend) == (parameter, backend)
    assert name in image.name
    assert bool(image.name) == bool(name)
    assert image.why.startswith("image")


def test_the_pretend_cloud_has_every_image_that_is_asked_for_by_its_parameter() -> None:
    known = by_parameter()
    assert {GPU, GPU_TORCH, JAX_NEURON, PLAIN} <= set(known)
    assert "PyTorch 2.12" in known[GPU_TORCH].name


def test_trn1_is_pinned_to_the_last_sdk_that_trains_with_pytorch_there() -> None:
    search, root = images.requests(PLACE, choose("trn1.32xlarge", "", ""))
    filters = {one["Name"]: one["Values"] for one in search.body["Filters"]}  # type: ignore[attr-defined]  # JSON
    assert filters["description"] == ["*Neuron SDK 2.28*"]
    assert search.body["Owners"] == ["amazon"], "anybody can publish an image of such a name"
    assert search.body["IncludeDeprecated"] is True, "AWS deprecates what it has replaced, and then hides it"
    ((unknown, path),) = search.gives
    assert unknown == IMAGE
    answer = {
        "Images": [
            {"ImageId": "ami-new", "CreationDate": "2026-03-14T08:30:00.000Z"},
            {"ImageId": "ami-old", "CreationDate": "2026-02-27T08:30:00.000Z"},
        ]
    }
    assert jmespath.search(path, answer) == "ami-new"
    assert root.gives == ((ROOT_DEVICE, "Images[0].RootDeviceName"),)


def test_parameter_is_asked_of_ssm_and_a_named_image_of_nobody() -> None:
    asked, _ = images.requests(PLACE, choose("p5.48xlarge", "", ""))
    assert (asked.service, asked.method, asked.body) == ("ssm", "GetParameter", {"Name": GPU})
    assert asked.target == f"us-east-1{GPU}"
    (root,) = images.requests(PLACE, choose("p5.48xlarge", "", "ami-0123456789abcdef0"))
    assert root.method == "DescribeImages"
    theirs = choose("trn2.48xlarge", "", "/my/image")
    assert (theirs.parameter, theirs.backend) == ("/my/image", "neuron")


@pytest.mark.parametrize("word", ["ami-xyz", "ami-0123456789", "latest", "ami-0123456789abcdef0; id", "resolve:ssm:/a"])
def test_what_names_no_image_is_refused(word: str) -> None:
    with pytest.raises(UserError, match="is not an image"):
        choose("p5.48xlarge", "", word)


@pytest.mark.parametrize("instance_type", ["g5g.xlarge", "c7gn.large", "p6e-gb200.36xlarge"])
def test_arm_needs_an_image_of_the_users(instance_type: str) -> None:
    with pytest.raises(UserError, match="ARM"):
        choose(instance_type, "", "")
    assert choose(instance_type, "", "ami-0123456789abcdef0").ami
    assert PLANNER.host_facts(candidate(instance_type, image="ami-0123456789abcdef0")).backend == ""


def test_unknown_framework_is_refused() -> None:
    with pytest.raises(UserError, match="framework is 'tensorflow'"):
        choose("p5.48xlarge", "tensorflow", "")
