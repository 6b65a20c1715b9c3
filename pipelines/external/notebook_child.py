"""The process that runs a notebook for a node: `python -m drivetrain.pipelines.external.notebook_child JOB.json`."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

from .notebook import EVENT


def main(job: dict[str, Any]) -> int:
    """Run the notebook of a job. Returns 1 where a cell failed or the kernel is missing, which `failure` then tells."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    from papermill.engines import NBClientEngine, papermill_engines
    from papermill.exceptions import PapermillExecutionError
    from papermill.execute import execute_notebook

    class _ReportingEngine(NBClientEngine):  # type: ignore[misc]  # papermill ships no types
        """papermill's engine, which also prints after each cell how many are done."""

        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **kwargs: Any) -> Any:
            """Run all cells; after each, print how many are done."""
            complete = nb_man.cell_complete
            total = len(nb_man.nb.cells)

            def completed(cell: Any, cell_index: int, **more: Any) -> None:
                complete(cell, cell_index, **more)
                print(f"\n{EVENT}{json.dumps([cell_index + 1, total])}", flush=True)

            nb_man.cell_complete = completed
            return super().execute_managed_notebook(nb_man, kernel_name, **kwargs)

    papermill_engines.register("drivetrain", _ReportingEngine)
    logging.getLogger("papermill").setLevel(logging.ERROR)  # it warns of each path that no cell has a default for
    try:
        execute_notebook(
            job["source"],
            job["executed"],
            parameters=job["parameters"],
            engine_name="drivetrain",
            kernel_name=job["kernel"],
            progress_bar=False,
            stdout_file=sys.stdout,
            stderr_file=sys.stdout,
            cwd=job["cwd"],
        )
    except NoSuchKernel as error:
        report: dict[str, Any] = {"kernel": error.name, "kernels": sorted(KernelSpecManager().find_kernel_specs())}
    except PapermillExecutionError as error:
        print(str(error).strip(), flush=True)
        report = {"cell": _cell(Path(job["executed"])), "line": _line(error)}
        report |= {"name": str(error.ename), "value": str(error.evalue)}
    else:
        return 0
    Path(job["failure"]).write_text(json.dumps(report), "utf-8")
    return 1


def _cell(executed: Path) -> int:
    """The number of the cell that failed, as in the user's notebook."""
    for cell in json.loads(executed.read_bytes())["cells"]:
        if any(output["output_type"] == "error" for output in cell.get("outputs", ())):
            match = re.fullmatch(r"cell-(\d+)", cell.get("id", ""))
            return int(match[1]) if match else 0
    return 0


def _line(error: Any) -> int:
    """The line of that cell, as IPython's traceback tells it; 0 where it does not."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
    match = re.search(rf"Cell In\s?\[{error.exec_count}\], line (\d+)", plain)
    return int(match[1]) if match else 0


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_bytes())))
