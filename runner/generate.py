"""Generate text from a run of a language model.

python -m runner.generate results/runs/RUN --prompt "the company said"
python -m runner.generate 5c0d3c2a17 --by gumbel --words 200 --texts 3 --seed 1      the run by the end of its id

The weights are the best ones of a finished run, or those of the last checkpoint of an unfinished run. The run must have
kept its weights (keep_weights=true if they are large).

Each word is one draw from the softmax over all classes. --by exact computes every logit. --by gumbel computes the
logits of the classes that LSH retrieves and of the few others whose Gumbel noise is large (LSH Softmax, section 3.3).
Its time is sub-linear in the number of classes, and it is exact except for classes that LSH misses. The same seed
gives the same text.

Words outside the vocabulary become <unk>. If the model was trained with sentence ends, a text starts after one, and
sentence ends are printed as line ends.

Legend: B texts drawn at the same time, T tokens so far, D hidden size.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from runner.commands.frame import add_run, carry_out, parser_of
from runner.errors import RunnerError, require
from runner.machine.memory import available_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.data import TextDataset
    from runner.network import ClassNetwork
    from runner.options.settings import RunConfig

    Draw = Callable[[np.ndarray, int], np.ndarray]  # hidden states (B, D) and a step to B classes


def main() -> int:
    """Print the generated texts; return the exit status (2 for a user's mistake, 130 after Ctrl-C)."""
    parser = parser_of("python -m runner.generate", __doc__)
    add_run(parser)
    parser.add_argument("--prompt", default="", help="words to continue, spelt as in the training text")
    parser.add_argument("--words", type=int, default=100, help="number of words to draw; default: 100")
    parser.add_argument("--texts", type=int, default=1, help="number of texts for the prompt; default: 1")
    parser.add_argument("--by", choices=("exact", "gumbel"), default="exact", help="way to draw a word")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws; default: 0")
    arguments = parser.parse_args()
    return carry_out(lambda: show(generate(arguments)))


def show(texts: Sequence[str]) -> None:
    """Print the texts, numbered if there are several."""
    for number, text in enumerate(texts, start=1):
        if len(texts) > 1:
            print(f"--- text {number} of {len(texts)}")
        print(text, flush=True)


def generate(arguments: argparse.Namespace) -> list[str]:
    """Return the texts, each with its prompt; print unknown words and the speed to standard error.

    Raises ConfigError for an argument out of range, RunnerError if the folder is no run of a language model.
    """
    require(arguments.words >= 1, "--words must be at least 1")
    require(arguments.texts >= 1, "--texts must be at least 1")
    require(0 <= arguments.seed < 2**31, "--seed must lie in [0, 2147483647]")
    from runner.runs.inventory import folder_of
    from runner.training.run_folder import config_of, run_with_weights

    folder = run_with_weights(folder_of(arguments.run, arguments.results_dir))
    config = config_of(folder)
    if config.dataset.family != "text":
        raise RunnerError(f"{arguments.run}: {config.run_id} is no language model; give the folder of a run on a text")
    if config.loss is None:
        raise RunnerError(
            f"{arguments.run}: its output layer is {config.method_name}, and this command draws only from a"
            " class matrix; give a run with a sampler"
        )
    if config.loss.by_magnitude:
        raise RunnerError(
            f"{arguments.run}: loss={config.loss.name} trains the softmax of the logits' magnitudes, and"
            " this command draws only from the softmax of the logits; give a run with another loss"
        )

    from runner.data.text.dataset import UNK
    from runner.machine.threads import set_threads
    from runner.training.run import load_trained

    set_threads(0)  # the run may come from a machine with more cores
    network, task, step = load_trained(config, folder)
    if not folder.is_finished():
        status = (folder.summary() or {}).get("status")
        print(f"the run is '{status}': these are its weights after step {step:,}", file=sys.stderr)
    words = _words_of(arguments.prompt, task.data)
    _check_memory(arguments, len(words), network.head.layer.dim, task.data.num_classes)
    if unknown := sorted({word for word in words if word not in task.data.ids}):
        print(f"not in the vocabulary, read as {UNK}: {', '.join(unknown)}", file=sys.stderr)
    prompt = task.data.to_continue(words)
    begin = time.perf_counter()
    draw = _drawing_by(arguments.by, network, config, arguments.seed)
    length = config.windows.length
    sample_tokens(network, prompt, draw, length=length, texts=arguments.texts, words=1)  # compiles kernels
    prepared = time.perf_counter()
    drawn = sample_tokens(network, prompt, draw, length=length, texts=arguments.texts, words=arguments.words)
    seconds = time.perf_counter() - prepared
    print(
        f"{drawn.size:,} words in {seconds:.2f} s: {drawn.size / seconds:,.0f} a second"
        f" ({prepared - begin:.2f} s to prepare)",
        file=sys.stderr,
    )
    vocabulary = task.data.vocabulary
    return [_written([*words, *(vocabulary[token] for token in row)]) for row in drawn]


def _check_memory(arguments: argparse.Namespace, prompt: int, dim: int, num_classes: int) -> None:
    """Raise RunnerError if the texts need more memory than there is: tokens, hidden states and logits of one step."""
    length = prompt + arguments.words
    needed = arguments.texts * 4 * (3 * length + 8 * dim + (num_classes if arguments.by == "exact" else 0))
    free = available_bytes()
    if needed > free:
        raise RunnerError(
            f"--texts {arguments.texts} of {length:,} words each need {needed / 2**30:,.1f} GiB of memory, of which"
            f" {free / 2**30:.1f} GiB are free; draw fewer texts or words at a time, with another --seed each time"
        )


def _words_of(prompt: str, data: "TextDataset") -> list[str]:
    """Return the prompt's words; each line end becomes an end of sentence if the text has sentences."""
    from runner.data.text.dataset import EOS

    return prompt.replace("\n", f" {EOS} ").split() if EOS in data.vocabulary else prompt.split()


def _written(words: list[str]) -> str:
    """Return the words as text, with a line end for each end of sentence."""
    from runner.data.text.dataset import EOS

    lines: list[list[str]] = [[]]
    for word in words:
        if word == EOS:
            lines.append([])
        else:
            lines[-1].append(word)
    return "\n".join(map(" ".join, lines)).strip("\n")


def _drawing_by(by: str, network: "ClassNetwork", config: "RunConfig", seed: int) -> "Draw":
    """Return the function that draws one class for each hidden state."""
    from runner.config import compose
    from runner.heads.inference import sample_by_gumbel, sample_exactly
    from runner.samplers.lsh_topk import LshTopK

    if by == "exact":
        return lambda hidden_BD, step: sample_exactly(network.head.layer, hidden_BD, seed=seed, step=step)
    own = config.sampler.name == "lsh_topk"
    settings = config.sampler if own else compose(["sampler=lsh_topk"]).sampler
    sampler = settings.build(layer=network.head.layer, training=network.head.training, seed=seed)
    assert isinstance(sampler, LshTopK)
    return lambda hidden_BD, step: sample_by_gumbel(sampler, hidden_BD, step=step)


def sample_tokens(
    network: "ClassNetwork", prompt: list[int], draw: "Draw", *, length: int, texts: int, words: int
) -> np.ndarray:
    """Draw each token given all before it; return the tokens after the prompt, (texts, words) int32.

    A model without a recurrent state sees the last ``length`` tokens, as many as in training.
    """
    from runner.data.text.batches import TextBatch
    from runner.models.recurrent import TextEncoder

    encoder = network.encoder
    assert isinstance(encoder, TextEncoder)
    tokens_BT = np.tile(np.array(prompt, dtype=np.int32), (texts, 1))
    seen, state = 0, encoder.start(texts)
    for step in range(1, words + 1):
        fresh_BT = tokens_BT[:, seen:] if state else tokens_BT[:, -length:]
        batch = TextBatch(tokens_BT=fresh_BT, targets_BT=fresh_BT, starts_anew=seen == 0)
        seen = tokens_BT.shape[1]
        hidden, state = encoder.go_on(batch, state)
        last_BD = np.ascontiguousarray(hidden.reshape(texts, -1, encoder.dim)[:, -1])
        tokens_BT = np.concatenate([tokens_BT, draw(last_BD, step)[:, None]], axis=1)
    return tokens_BT[:, len(prompt) :]


if __name__ == "__main__":
    sys.exit(main())
