"""Learn ``rocmprobe/data/learned_causes.json`` from labelled corpora.

Run ``python benchmarks/learned_causes.py FILE..``. A FILE has one JSON object per line, with ``url``,
``log``, ``cause`` and ``layer``. No text of a report is kept: the file holds hashes of words and weights.
``--without FILE`` names reports (by ``url``) to leave out, so that they can test what was learned.

The model is multinomial logistic regression on TF-IDF (Hastie, Tibshirani and Friedman, The Elements of
Statistical Learning, 4.4; Manning, Raghavan and Schütze, Introduction to Information Retrieval, 6.2).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import torch

from rocmprobe.explain.learned import ONE, words_in
from rocmprobe.knowledge import causes
from rocmprobe.text.log import of_text

RESULT = Path(__file__).resolve().parent.parent / "rocmprobe/data/learned_causes.json"
#: Weight of the reports' loss against the squared weights (C of scikit-learn). Leaving out sets 10 to 12 in
#: turn, 5 to 20 give equal results.
LOSS = 20.0
#: Smaller weights (in units of 1 / ONE) are left out.
SMALL = 4
ABOUT = (
    "Weights of words for causes and layers, learned from labelled public reports by "
    "benchmarks/learned_causes.py. Words are kept as hashes (explain/learned.py)."
)


@click.command()
@click.argument("corpora", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--without", multiple=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", default=RESULT, type=click.Path(path_type=Path))
def main(corpora: tuple[Path, ...], without: tuple[Path, ...], output: Path) -> None:
    """Learn from corpora and write the weights."""
    left_out = {row["url"] for row in _rows(without)}
    rows = list({row["url"]: row for row in _rows(corpora) if row["url"] not in left_out}.values())
    texts = [words_in(of_text(_text(row["log"]))) for row in rows]
    times = Counter(word for words in texts for word in words)
    known = sorted(word for word, count in times.items() if count > 1)
    # The usual smoothed form: ln((1 + n) / (1 + n of the word)) + 1.
    rarity = [math.log((1 + len(rows)) / (1 + times[word])) + 1 for word in known]
    place = {word: index for index, word in enumerate(known)}
    inputs = torch.zeros(len(rows), len(known), dtype=torch.float64)
    for index, words in enumerate(texts):
        for word in words & place.keys():
            inputs[index, place[word]] = rarity[place[word]]
    inputs = torch.nn.functional.normalize(inputs)
    head: dict[str, Any] = {"about": ABOUT, "reports": len(rows)}
    columns = [[f"{value:.2f}" for value in rarity]]
    for target in ("cause", "layer"):
        labels = sorted({row[target] for row in rows})
        weight, bias = _fit(inputs, torch.tensor([labels.index(row[target]) for row in rows]), len(labels))
        head[f"{target}s"] = {name: round(value, 3) for name, value in zip(labels, bias.tolist())}
        columns.append([_sparse(weights) for weights in weight.T.tolist()])
    table = zip(known, (json.dumps("; ".join(row)) for row in zip(*columns)))
    lines = ",\n".join(f'  "{word}": {row}' for word, row in table)
    output.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "words": {{\n{lines}\n }}\n}}\n', "utf-8")
    print(f"{len(rows)} reports, {len(known)} words, {output.stat().st_size} bytes in {output}")


def _rows(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Yield the reports of files. A cause that ``data/causes.toml`` does not have is "unknown"."""
    names = {row.name for row in causes.causes()}
    for line in (line for file in files for line in file.read_text("utf-8").splitlines()):
        row = json.loads(line)
        yield {**row, "cause": row["cause"] if row["cause"] in names else "unknown"}


def _text(log: Any) -> str:
    return log if isinstance(log, str) else "\n".join(log)


def _fit(inputs: torch.Tensor, labels: torch.Tensor, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights [classes, words] and biases [classes] of least loss."""
    weight = torch.zeros(classes, inputs.shape[1], dtype=inputs.dtype, requires_grad=True)
    bias = torch.zeros(classes, dtype=inputs.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        wrong = torch.nn.functional.cross_entropy(inputs @ weight.T + bias, labels, reduction="sum")
        total: torch.Tensor = LOSS * wrong + (weight**2).sum() / 2
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[arg-type]
    return weight.detach(), bias.detach()


def _sparse(weights: list[float]) -> str:
    """Return "class weight class weight ..." without small weights, the weights in units of 1 / ONE."""
    units = [(index, round(value * ONE)) for index, value in enumerate(weights)]
    return " ".join(f"{index} {unit}" for index, unit in units if abs(unit) >= SMALL)


if __name__ == "__main__":
    main()
