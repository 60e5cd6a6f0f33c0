"""Text from a run of a language model: from its best weights, or, before its end, from its last checkpoint.

python -m runner.generate results/runs/RUN --prompt "the company said"
python -m runner.generate results/runs/RUN --by gumbel --words 200 --texts 3 --seed 1

Each word is one draw from the softmax over all classes: --by exact computes every logit; --by gumbel looks at the
classes that LSH retrieves and at the few others whose Gumbel noise is large (LSH Softmax, section 3.3), which takes
time sub-linear in the classes and is exact but for what LSH misses. The same seed gives the same text.

Words that the vocabulary lacks become <unk>. A text that was trained with sentence ends starts after one, and ends are
printed as line ends. The run must have kept its weights (keep_weights=true where they are large).
"""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from runner.config import explain
from runner.errors import RunnerError, require

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.data import TextDataset
    from runner.network import ClassNetwork
    from runner.settings import RunConfig

    Draw = Callable[[np.ndarray, int], np.ndarray]  # hidden states (B, D) and a step to B classes


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m runner.generate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run_folder", type=Path, metavar="RUN_FOLDER", help="folder of a run")
    parser.add_argument("--prompt", default="", help="words to go on from, as the training text writes them")
    parser.add_argument("--words", type=int, default=100, help="words to draw; default: 100")
    parser.add_argument("--texts", type=int, default=1, help="texts to draw from the same prompt; default: 1")
    parser.add_argument("--by", choices=("exact", "gumbel"), default="exact", help="how a word is drawn")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    arguments = parser.parse_args()
    try:
        for number, text in enumerate(generate(arguments), start=1):
            if arguments.texts > 1:
                print(f"--- text {number} of {arguments.texts}")
            print(text, flush=True)
    except KeyboardInterrupt:
        return 130
    except (RunnerError, OSError) as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        return 2
    return 0


def generate(arguments: argparse.Namespace) -> list[str]:
    """The texts, prompt included; what was unknown and how fast it went is told on standard error."""
    require(arguments.words >= 1, "--words must be at least 1")
    require(arguments.texts >= 1, "--texts must be at least 1")
    require(0 <= arguments.seed < 2**31, "--seed must lie in [0, 2147483647]")
    from runner.training.run_folder import config_of, run_with_weights

    folder = run_with_weights(arguments.run_folder)
    config = config_of(folder)
    if config.dataset.family != "text":
        raise RunnerError(f"{arguments.run_folder}: {config.run_id} is no language model")
    if config.loss.by_magnitude:
        raise RunnerError(f"loss={config.loss.name} trains the softmax of magnitudes, which nothing here draws from")

    from runner.machine.threads import set_threads
    from runner.training.run import load_trained

    set_threads(0)  # the run may have been made where there are more
    network, task, step = load_trained(config, folder)
    if not folder.is_finished():
        status = (folder.summary() or {}).get("status")
        print(f"the run is '{status}': these are its weights after step {step:,}", file=sys.stderr)
    words = _words_of(arguments.prompt, task.data)
    prompt = _ids_of(words, task.data)
    begin = time.perf_counter()
    draw = _drawing_by(arguments.by, network, config, arguments.seed)
    length = config.windows.length
    sample_tokens(network, prompt, draw, length=length, texts=arguments.texts, words=1)  # compiles
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


def _words_of(prompt: str, data: "TextDataset") -> list[str]:
    """The prompt's words, and an end of sentence for each line end where the text has them."""
    from runner.data.text import EOS

    return prompt.replace("\n", f" {EOS} ").split() if EOS in data.vocabulary else prompt.split()


def _ids_of(words: list[str], data: "TextDataset") -> list[int]:
    """Ids to start from, never none: the end of a sentence (without sentences, the most frequent word) if need be."""
    from runner.data.text import EOS, UNK

    id_of = {word: number for number, word in enumerate(data.vocabulary)}
    unknown = sorted({word for word in words if word not in id_of})
    if unknown:
        print(f"not in the vocabulary, read as {UNK}: {', '.join(unknown)}", file=sys.stderr)
    ids = [id_of.get(word, id_of[UNK]) for word in words]
    if EOS in id_of:
        return [id_of[EOS], *ids]
    return ids or [0]


def _written(words: list[str]) -> str:
    from runner.data.text import EOS

    lines: list[list[str]] = [[]]
    for word in words:
        if word == EOS:
            lines.append([])
        else:
            lines[-1].append(word)
    return "\n".join(map(" ".join, lines)).strip("\n")


def _drawing_by(by: str, network: "ClassNetwork", config: "RunConfig", seed: int) -> "Draw":
    """The way to draw one class for each hidden state."""
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
    """(texts, words) int32: what follows the prompt, each token drawn given all before it.

    A model without a state sees ``length`` tokens back, as many as it was trained on.
    """
    from runner.data.text_batches import TextBatch
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
