"""rocmprobe in ReFrame, on every partition of the settings:

    reframe -C settings.py -c rocmprobe_test.py -r
    reframe -C settings.py -c rocmprobe_test.py -n RocmprobeCheck --distribute=idle -r
    find output -name results.json -exec rocmprobe compare {} +

The second checks each idle node, the third compares all runs.

Options: ``-S executable=/opt/rocmprobe/bin/rocmprobe``; ``-S RocmprobeRun.arguments='--level standard'``;
``-S simulate=conv-hang`` tries the tests on a simulated machine.
"""

import json
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.exceptions import SanityError


class Rocmprobe(rfm.RunOnlyRegressionTest):
    """What both tests share: where they run, and the file that they read."""

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    sourcesdir = None
    executable = "rocmprobe"
    num_tasks = 1
    exclusive_access = True
    simulate = variable(str, value="")

    def simulated(self):
        return ["--simulate", self.simulate] if self.simulate else []

    def read(self, name):
        # ReFrame's back end "squeue" does not know the exit code, so what was written is what counts.
        path = Path(self.stagedir, name)
        if not path.exists() or not path.stat().st_size:
            raise SanityError(f"{name} was not written: see rfm_job.err")
        return json.loads(path.read_text("utf-8"))


@rfm.simple_test
class RocmprobeCheck(Rocmprobe):
    """The check within a minute. It fails with the verdict, and is skipped where it could not tell."""

    #: results.json of a run on the node, or its folder: its recommended configuration is checked.
    results = variable(str, value="")
    time_limit = "2m"

    @run_before("run")
    def set_options(self):
        results = [self.results] if self.results else []
        self.executable_opts = ["check", *results, "--json", *self.simulated(), "> check.json"]

    @sanity_function
    def has_no_problem(self):
        check = self.read("check.json")
        self.skip_if(check["state"] not in ("ok", "problem"), check["verdict"])
        if check["state"] == "problem":
            raise SanityError(check["verdict"])
        return True


@rfm.simple_test
class RocmprobeRun(Rocmprobe):
    """A whole run. It fails where no configuration works; seconds of forward and backward are its figures."""

    arguments = variable(str, value="--level quick")
    time_limit = "1h"
    keep_files = ["run"]

    @run_before("run")
    def set_options(self):
        self.executable_opts = ["run", self.arguments, *self.simulated(), "--fail-on never", "--out run"]

    @sanity_function
    def has_a_configuration_that_works(self):
        results = self.read("run/results.json")
        if results["partial"]:
            raise SanityError("the run did not come to its end")
        if results["recommendation"]["verdict"] == "none":
            raise SanityError(results["recommendation"]["sentence"])
        return True

    @run_before("performance")
    def set_figures(self):
        results = self.read("run/results.json")
        recommended = results["recommendation"]["configuration"]["setting"]
        self.perf_variables = {
            outcome["problem"]: sn.make_performance_function(lambda s: s, "s", outcome["timings"]["fwd_bwd"])
            for outcome in results["outcomes"]
            if outcome["check"] == "throughput" and outcome["setting"] == recommended
            if outcome["timings"].get("fwd_bwd")
        }
