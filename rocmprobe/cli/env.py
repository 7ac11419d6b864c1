"""``rocmprobe env``: prints the recommended configuration as environment variables."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import click

from rocmprobe.cli.base import exit_code_command
from rocmprobe.model.exit_codes import FINDINGS, OK
from rocmprobe.model.results import BadInput
from rocmprobe.text.printing import print_stderr, print_stderr_lines, say, say_json

if TYPE_CHECKING:
    from rocmprobe.exec.choice import ChosenConfiguration


@click.command("env")
@click.argument("results", required=False, type=click.Path(path_type=Path))
@click.option(
    "--shell", type=click.Choice(("sh", "fish", "powershell", "dotenv", "json")), default="sh",
    show_default=True,
)  # fmt: skip
@click.option("--setting", default="", metavar="NAME",
              help="Print this setting, not the recommended one.")  # fmt: skip
@click.option("--simulated", is_flag=True, help="Also accept results of a simulated machine.")
@exit_code_command
def env_command(results: Optional[Path], shell: str, setting: str, simulated: bool) -> int:
    """Print the recommended configuration as shell variables.

    Variables that the trials ran without are unset (null in JSON).

    If your program also needs additional lines of Python code, they are printed to stderr. RESULTS is the
    folder of a run, or its results.json. The default is reports/recommended, the last complete run on this
    machine. Exits 1 if no configuration is recommended.

    \b
    Examples:
      eval "$(rocmprobe env)"
      rocmprobe env --setting vendor-off
    """
    from rocmprobe.exec.choice import choose
    from rocmprobe.judge.recommendation.configuration import needs_clean_databases, unusable

    chosen = choose(results, setting, simulated)
    configuration = chosen.configuration
    if configuration.setting is None:
        print_stderr(f"these results recommend no configuration: {chosen.why_none}")
        return FINDINGS
    refused = unusable(configuration)
    if refused:
        place = f"{chosen.path}: {'settings' if setting else 'recommendation/configuration'}"
        raise BadInput(f"{place}/{refused}; the file is damaged; start `rocmprobe run` again")
    env = {**configuration.env, **_new_caches(chosen)}
    unset = _unset(chosen)
    if chosen.results.simulated:
        print_stderr(f"for the simulated machine {chosen.results.simulated}, not this one")
    if chosen.setting and needs_clean_databases(chosen.results.findings, chosen.setting):
        print_stderr("your own databases and caches fail; `rocmprobe exec` uses clean ones")
    forms = {
        "sh": "export {0}={1}", "fish": "set -gx {0} {1}", "dotenv": "{0}={1}",
        "powershell": "$env:{0} = {1}",
    }  # fmt: skip
    removing = {
        "sh": "unset {0}", "fish": "set -e {0}",
        "powershell": "Remove-Item Env:{0} -ErrorAction SilentlyContinue",
    }  # fmt: skip
    if shell == "json":
        say_json({**dict.fromkeys(unset), **env})
    else:
        if shell == "dotenv" and unset:
            print_stderr(f"such a file cannot unset variables; unset them yourself: {', '.join(unset)}")
        for name in unset if shell in removing else ():
            say(removing[shell].format(name))
        for name, value in env.items():
            # PowerShell escapes a quote by doubling it. shlex.quote is for POSIX shells.
            doubled = "'" + value.replace("'", "''") + "'"
            say(forms[shell].format(name, doubled if shell == "powershell" else shlex.quote(value)))
    if configuration.code:
        print_stderr("the program also needs these lines:")
        print_stderr_lines(configuration.code)
    return OK


def _unset(chosen: ChosenConfiguration) -> tuple[str, ...]:
    """Return the variables of the run's environment and of the present one that must not be set."""
    from rocmprobe.knowledge.environment import removed

    configuration, setting = chosen.configuration, chosen.setting
    here = removed(replace(setting, env=configuration.env), os.environ) if setting else ()
    return tuple(dict.fromkeys((*configuration.unset, *here)))


def _new_caches(chosen: ChosenConfiguration) -> dict[str, str]:
    """Return variables for new cache folders, if the configuration requires new caches."""
    from rocmprobe.exec.caches import caches_of
    from rocmprobe.knowledge.stacks import new_caches

    needed = new_caches(chosen.configuration.env)
    if not needed or chosen.setting is None:
        return {}
    caches = caches_of(chosen.results, chosen.configuration, chosen.setting, os.environ, clean=False)
    if caches is None:
        print_stderr(f"set {' and '.join(needed)} to new folders: kernels in the old folders stay wrong")
        return {}
    return {name: caches.variables[name] for name in needed}
