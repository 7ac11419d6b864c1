"""Generator of the example reports: ``python reports/examples/make.py`` (takes minutes).

With ``--pages``, only judge and render the committed ``results.json`` again (takes seconds), as after a
change of the page or of a sentence. Needs rocmprobe with its extra ``torch``. The picture in the documents
also needs playwright and chromium.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

import rocmprobe
from rocmprobe.judge.judgement import judge
from rocmprobe.model.results_file import read_results, results_document, to_json
from rocmprobe.text.redact import census, redacted_text

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PICTURE = ROOT / "docs" / "report.png"


def _only(*checks: str) -> list[str]:
    return [word for check in checks for word in ("--only", check)]


#: The rungs below convolution, and convolution.
LADDER = _only(
    "copy",
    "elementwise",
    "repeated",
    "gemm",
    "im2col",
    "pooling",
    "activation",
    "convolution",
    "convolution-at-size",
)
#: Options of each example: enough checks to show the parts of a report, few enough for the repository.
EXAMPLES = {
    "cpu": [
        "--device",
        "cpu",
        *LADDER,
        *_only("batch-norm", "training-step", "start-up", "throughput", "memory"),
    ],
    "rdna1-rocm52-conv-dead": [
        *("--simulate", "rdna1-rocm52-conv-dead", *LADDER),
        *_only("batch-norm", "training-step", "throughput", "memory"),
        "--settings",
        "default,find-fast,gemm-only,naive-only,no-winograd,clean-db,vendor-off,bypass,bypass+vendor-off,cpu",
    ],
}
#: Examples of machines that are not available. Their outcomes stay as recorded.
RECORDED = ("emulated-gfx1010",)
#: The example whose first screen the documents show.
SHOWN = "rdna1-rocm52-conv-dead"


def gather(name: str) -> None:
    """Run the example ``name`` and keep its results, without paths of this computer."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / name
        # Exit code 1 is accepted, because examples are made for their findings.
        done = _rocmprobe("run", *EXAMPLES[name], "--out", str(out))
        if done not in (0, 1):
            raise click.ClickException(f"{name}: the run ended with exit code {done}")
        text = (out / "results.json").read_text("utf-8")
        target = HERE / name / "results.json"
        target.parent.mkdir(exist_ok=True)
        target.write_text(_without_paths(text, out, target.parent), "utf-8")


def render(name: str) -> None:
    """Judge the results of the example ``name`` again, in today's words, and write the page."""
    target = HERE / name / "results.json"
    results = judge(read_results(target))
    results = replace(results, redacted=census(to_json(results)))
    # Without indentation, the file is a third smaller.
    target.write_text(json.dumps(json.loads(results_document(results)), ensure_ascii=False) + "\n", "utf-8")
    if _rocmprobe("report", str(target), "-o", str(HERE / name / "report.html")):
        raise click.ClickException(f"{name}: no report.html")


def _rocmprobe(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "rocmprobe", *arguments], check=False).returncode


def _without_paths(text: str, out: Path, target: Path) -> str:
    package = Path(rocmprobe.__file__).resolve().parents[1]
    places = {
        str(out): str(target.relative_to(ROOT)),
        tempfile.gettempdir(): "$TMPDIR",
        str(package): "/opt/rocmprobe",
        sysconfig.get_path("purelib"): "/opt/site-packages",
        sys.base_prefix: "/usr",
        sys.prefix: "/usr",
    }
    for place in sorted(places, key=len, reverse=True):
        # The run has already redacted paths in a user's home, so the redacted form is replaced too.
        for written in (place, redacted_text(place)):
            text = text.replace(written, places[place])
    return text


def picture() -> None:
    """Take a screenshot of the first screen of the example that the documents show."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 864, "height": 944})
        page.goto((HERE / SHOWN / "report.html").as_uri())
        page.screenshot(path=str(PICTURE))
        browser.close()


@click.command()
@click.argument("names", nargs=-1, type=click.Choice((*EXAMPLES, *RECORDED)))
@click.option("--pages", is_flag=True, help="Judge and render again; measure nothing anew.")
@click.option("--no-picture", is_flag=True, help="Leave docs/report.png as it is.")
def main(names: Sequence[str], pages: bool, no_picture: bool) -> None:
    """Make the examples NAMES (default: all) again. Those that were recorded are not measured again."""
    for name in names or (*EXAMPLES, *RECORDED):
        if not pages and name in EXAMPLES:
            gather(name)
        render(name)
    if not no_picture:
        picture()


if __name__ == "__main__":
    main()
