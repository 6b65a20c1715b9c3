"""Components that are not Python functions: a command, a container, a KFP component, a notebook."""

from .container import container_component
from .kfp import kfp_component
from .notebook import notebook_component
from .placeholders import (
    file_path,
    if_present,
    input_path,
    output_path,
    parameter,
    properties_path,
)
from .shell import shell_component

__all__ = [
    "container_component",
    "file_path",
    "if_present",
    "input_path",
    "kfp_component",
    "notebook_component",
    "output_path",
    "parameter",
    "properties_path",
    "shell_component",
]
