"""Train a language model whose output vectors are its word vectors: python examples/torch/language_model.py"""

import torch
from torch import nn

from runner.torch import RowAdam, SampledSoftmaxLoss

WORDS, DIM, LENGTH, ROWS = 5000, 32, 16, 32


def text() -> torch.Tensor:
    """Make texts in which each word has a few usual successors, (ROWS, LENGTH + 1)."""
    words = [torch.randint(50, (ROWS,))]
    for _ in range(LENGTH):
        words.append((words[-1] * 7 + torch.randint(3, (ROWS,))) % 400)
    return torch.stack(words, 1)


def main(steps: int = 150) -> tuple[float, float]:
    """Return the exact cross-entropy of unseen text before and after training, in nats a word."""
    torch.manual_seed(0)
    words, memory = nn.Embedding(WORDS, DIM, sparse=True), nn.LSTM(DIM, DIM, batch_first=True)
    nn.init.normal_(words.weight, std=DIM**-0.5)
    loss = SampledSoftmaxLoss(DIM, WORDS, "log_uniform", num_samples=200, rows=words)  # frequent words have low ids
    optimizers = [RowAdam(loss, lr=0.01), torch.optim.AdamW(memory.parameters(), lr=0.01)]

    def mean_loss(batch: torch.Tensor, loss: nn.Module) -> torch.Tensor:
        return loss(memory(words(batch[:, :-1]))[0].flatten(0, 1), batch[:, 1:].flatten()).loss

    before = mean_loss(text(), loss.eval()).item()
    for _ in range(steps):
        mean_loss(text(), loss.train()).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return before, mean_loss(text(), loss.eval()).item()


if __name__ == "__main__":
    print("{:.2f} nats a word before, {:.2f} after".format(*main()))
