"""Which image the machines boot from, and which software of AWS's that brings. Pure.

Sources: AWS Deep Learning AMI guide and Neuron documentation ("Neuron DLAMI User Guide", "Update PyTorch on a Deep
Learning AMI"), SDK 2.28 to 2.33, February to October 2026. A parameter of a line means its newest build. A build of one
SDK is found by the description of its image, as the guide says; old images are deprecated, so these are asked for too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.catalog.image_pythons import AWS_DRIVER, AWS_NEURON, AWS_TORCH, UBUNTU_2404
from orchestrator.errors import UserError
from orchestrator.providers.aws.requests import Place, request
from orchestrator.providers.aws.tags import where
from orchestrator.providers.aws.unknowns import IMAGE, ROOT_DEVICE
from orchestrator.slices import Request
from orchestrator.values import Text, to_text

GPU = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
# The newest line with PyTorch on Ubuntu 24.04 (seen in public launchers, August 2026); that of 2.13 is on 26.04 only.
GPU_TORCH = "/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-2.12-ubuntu-24.04/latest/ami-id"
JAX_NEURON = "/aws/service/neuron/dlami/jax-0.10/ubuntu-24.04/latest/image_id"
PLAIN = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
FRAMEWORKS = ("", "torch", "jax")
# Amazon EC2 User Guide, "Resource IDs": 17 hexadecimal digits, 8 for resources from before 2018 (read 2026-11-26).
_AMI = re.compile(r"ami-(?:[0-9a-f]{8}|[0-9a-f]{17})")
_PARAMETER = re.compile(r"/[A-Za-z0-9_./-]{1,1010}")
# Types that AWS's PyTorch images support (DLAMI release notes of 2.11 and 2.13, autumn of 2026): not P6-B300.
_WITH_TORCH = re.compile(r"(?:g4dn|g5|g6|g6e|g6f|gr6|gr6f|p4d|p4de|p5|p5e|p5en|p6-b200)\.")
_ARM = re.compile(r"[a-z]+\d+[a-z]*g[a-z]*\.|p6e-gb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One of ami, parameter and name is set. ami: its id. parameter: of SSM, whose value is the id.

    name and sdk: what the newest image has in its name, and which Neuron SDK it has, "" for any. why: in words for the
    plan. backend: what drives the accelerator with it, "" for what usually does. python: what a program finds, for the
    plan; "" where that is not known.
    """

    ami: str = ""
    parameter: str = ""
    name: str = ""
    sdk: str = ""
    why: str = ""
    backend: str = ""
    python: str = ""

    @property
    def id(self) -> Text:
        return to_text(self.ami) if self.ami else Text.of(IMAGE)


def choose(instance_type: str, framework: str, asked: str) -> Image:
    """asked: what the user named, "" for nothing. Raises UserError for what names no image, and where none is known."""
    if framework not in FRAMEWORKS:
        raise UserError(f"framework is '{framework}'", "AWS's images have torch or jax", "framework: jax")
    usual = _usual(instance_type, framework)
    if not asked:
        if _ARM.match(instance_type):
            raise UserError(
                f"{instance_type} has processors of ARM",
                "orch chooses images for x86_64 only",
                "name one: image_id: ami-…",
            )
        return usual
    why = f"image {asked}, as requested"
    if _AMI.fullmatch(asked):
        return Image(ami=asked, why=why, backend=usual.backend)
    if _PARAMETER.fullmatch(asked):
        return Image(parameter=asked, why=why, backend=usual.backend)
    raise UserError(
        f"'{asked}' is not an image",
        "expected an id, ami- and 8 or 17 hexadecimal digits, or a parameter of SSM, /aws/service/…",
        "image_id: ami-…   or leave it out, and orch chooses",
    )


def requests(place: Place, image: Image) -> tuple[Request, ...]:
    """What finds its id, and its root device: Ubuntu and Amazon Linux call that differently."""
    found: list[Request] = []
    if image.parameter:
        asked: dict[str, object] = {"Name": image.parameter}
        gives = ((IMAGE, "Parameter.Value"),)
        subject = image.parameter.lstrip("/")
        found.append(request(place, "GetParameter", subject, asked, service="ssm", gives=gives))
    elif image.name:
        newest = ((IMAGE, "sort_by(Images, &CreationDate)[-1].ImageId"),)
        found.append(request(place, "DescribeImages", image.name.strip("*"), _search(image), gives=newest))
    root = ((ROOT_DEVICE, "Images[0].RootDeviceName"),)
    # Of an image that its owner has deprecated, too: by its id it is found in any case.
    found.append(request(place, "DescribeImages", image.ami or "image", {"ImageIds": [image.id]}, gives=root))
    return tuple(found)


def is_neuron(instance_type: str) -> bool:
    return instance_type.startswith(("trn", "inf"))


def _usual(instance_type: str, framework: str) -> Image:
    jax = "jax" if framework == "jax" else ""
    if is_neuron(instance_type):
        if jax:
            return Image(
                parameter=JAX_NEURON, why="image: JAX NeuronX, the newest build", backend=jax, python=AWS_NEURON
            )
        if instance_type.startswith(("trn1", "inf")):
            return Image(
                name="Deep Learning AMI Neuron PyTorch 2.9 (Ubuntu 24.04)*",
                sdk="2.28",
                why="image: Neuron SDK 2.28, the last one for training with PyTorch on this chip",
                backend="neuron",
                python=AWS_NEURON,
            )
        return Image(
            name="Deep Learning AMI Neuron torch-neuronx 2.14* (Ubuntu 24.04)*",
            why="image: TorchNeuron (torch-neuronx 2.14, public beta), the newest build",
            backend="neuron",
            python=AWS_NEURON,
        )
    if framework == "torch" and _WITH_TORCH.match(instance_type):
        why = "image: PyTorch 2.12, CUDA and EFA on Ubuntu 24.04, the newest build"
        return Image(parameter=GPU_TORCH, why=why, python=AWS_TORCH)
    if instance_type.startswith(("p", "g")):
        why = "image: NVIDIA driver, CUDA and EFA on Ubuntu 24.04, the newest build"
        return Image(parameter=GPU, why=why, backend=jax, python=AWS_DRIVER)
    return Image(parameter=PLAIN, why="image: Ubuntu 24.04, the newest build", backend=jax, python=UBUNTU_2404)


def _search(image: Image) -> dict[str, object]:
    filters = [where("name", image.name), where("state", "available"), where("architecture", "x86_64")]
    if image.sdk:
        filters.append(where("description", f"*Neuron SDK {image.sdk}*"))
    return {"Owners": ["amazon"], "Filters": filters, "IncludeDeprecated": True}
