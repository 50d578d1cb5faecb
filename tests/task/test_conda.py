"""Which scripts expect conda on the host."""

import pytest

from orchestrator.task.conda import expects_conda


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("conda create -n a -y", True),
        ("cd a\nif ! conda activate a; then exit; fi", True),
        ('eval "$(conda shell.bash hook)"', True),
        ("pip list && conda env list", True),
        ("source ~/miniconda3/etc/profile.d/conda.sh", True),
        ("pip install conda-pack  # no conda activate", False),
        ("bash Miniforge3.sh -b\nconda activate a", False),
        ("wget https://x/Miniconda3-latest-Linux-x86_64.sh -O i.sh\nbash i.sh -b\nconda activate a", False),
        ("ls ~/conda", False),
    ],
)
def test_a_script_that_uses_conda_and_does_not_install_it_expects_it(script: str, expected: bool) -> None:
    assert expects_conda(script) is expected
