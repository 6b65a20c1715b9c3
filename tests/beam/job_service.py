"""Beam's local job service, but with as many workers as --direct_num_workers asks for: Beam 2.77's always has one.

Its job runs `FnApiRunner.run_via_runner_api`, and only `run_pipeline` reads that option. Everything else (the job
API, the Fn API over gRPC, the worker pool's processes) is Beam's own.
"""

import sys
from typing import Any

from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.runners.portability import local_job_service_main
from apache_beam.runners.portability.fn_api_runner import fn_runner


class Parallel(fn_runner.FnApiRunner):
    def run_via_runner_api(self, pipeline_proto: Any, options: Any) -> Any:
        self._num_workers = int(options.view_as(DirectOptions).direct_num_workers)  # comes back as text
        return super().run_via_runner_api(pipeline_proto, options)


if __name__ == "__main__":
    fn_runner.FnApiRunner = Parallel  # type: ignore[misc]  # the job service looks it up here
    local_job_service_main.run(sys.argv[1:])  # type: ignore[no-untyped-call]  # Beam has no types here
