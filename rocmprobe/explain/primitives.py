"""Which of the vendor library's primitives a program was in when it failed, by the frames of its
traceback."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Optional

from rocmprobe.text.log import Log

#: By the word for situations: what a line of PyTorch's own frames, or of MIOpen's log, says. The first that a
#: line matches counts, so a transposed convolution stands before a convolution.
_LINES: Mapping[str, re.Pattern[str]] = {
    "transposed-convolution": re.compile(r"conv_transpose[123]d|ConvTranspose[123]d|slow_conv_transpose"),
    "batch-norm": re.compile(r"modules/batchnorm\.py|\bbatch_norm\b|BatchNorm[123]?d?\b|miopen_batch_norm"),
    "rnn": re.compile(r"modules/rnn\.py|_VF\.(?:lstm|gru|rnn_\w{4})\b|miopen_?[rR][nN][nN]|\b(?:LSTM|GRU)\("),
    "ctc-loss": re.compile(r"\bctc_loss\b|CTCLoss"),
    "convolution": re.compile(
        r"modules[/\\]conv\.py|\bF\.conv[123]d\b|_conv_forward|miopen_convolution|miopenConvolution|\bconvolution_backward\b"
        r"|\bConv[123]d\b|MIOpenDriver conv|naive_conv|\[(?:Find|Get)?Conv\w*(?:Fwd|Bwd)\w*\]|convolutionocl"
    ),
}  # fmt: skip
#: For people, with its article.
WORDS: Mapping[str, str] = {
    "transposed-convolution": "a transposed convolution",
    "batch-norm": "a batch norm",
    "rnn": "a recurrent layer (RNN, LSTM, GRU)",
    "ctc-loss": "a CTC loss",
    "convolution": "a convolution",
}


def primitive_in(log: Log) -> Optional[str]:
    """The word of the last line that names one, None where no line does.

    The last one is nearest to the failure: frames of a traceback are printed from the outermost in.
    """
    for line in reversed(log.lines):
        for word, pattern in _LINES.items():
            if pattern.search(line.text):
                return word
    return None
