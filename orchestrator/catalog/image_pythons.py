"""The Python of the images that orch chooses, in words for a plan.

Sources, read November 2026. Ubuntu: documentation.ubuntu.com, "Available Python versions" (22.04: 3.10, 24.04: 3.12),
package python-is-python3 (`python` is there only with it), and PEP 668 since 23.04. AWS: `python_location` in the
release notes "Deep Learning Base AMI with Single CUDA (Ubuntu 24.04) 20260717" and "Deep Learning OSS Nvidia Driver AMI
GPU PyTorch 2.9 (Ubuntu 24.04) 20260317"; for Neuron templates/run/neuron_python.sh.j2.
"""

from __future__ import annotations

_MANAGED = "pip needs an environment (PEP 668)"
UBUNTU_2204 = "`python3` is 3.10 of Ubuntu 22.04; no `python`, no torch, no JAX"
UBUNTU_2404 = f"`python3` is 3.12 of Ubuntu 24.04; no `python`, no torch, no JAX; {_MANAGED}"
AWS_DRIVER = f"`python3` is 3.12 of Ubuntu 24.04; no torch, no JAX; {_MANAGED}"
AWS_TORCH = f"/opt/pytorch/bin/python has torch; `python3` is 3.12 of Ubuntu 24.04; {_MANAGED}"
AWS_NEURON = "`python` is that of AWS's Neuron environment, which has the framework"


def name_ubuntu_python(image: str) -> str:
    """Return what an image of Google's finds, by its name or runtime version; "" where the name does not say it."""
    if "2404" in image:
        return UBUNTU_2404
    # Runtime versions of TPU VMs, "Cloud TPU software versions": Ubuntu 22.04 below all of them (read November 2026).
    return UBUNTU_2204 if "2204" in image or image.startswith("v2-alpha-tpuv") else ""


def name_other_python(image_python: str) -> str:
    """Return what a task says for another Python than that of the image."""
    ways = "uv venv or conda create in setup"
    return f"accelerator_args: {{framework: torch}}, or {ways}" if image_python == AWS_DRIVER else ways
