"""Train a classifier of rows with several labels, on hashed negatives: python examples/torch/extreme_classifier.py"""

import torch
from torch import nn

from runner.torch import RowAdam, SampledSoftmaxLoss

FEATURES, LABELS, DIM, ROWS = 2000, 4000, 32, 64


def rows() -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """Make rows of five features (ROWS, 5), and the labels of all rows as (indptr, ids): two each."""
    topic = torch.randint(300, (ROWS, 1))
    features = (topic * 6 + torch.randint(6, (ROWS, 5))) % FEATURES
    return features, (torch.arange(0, 2 * ROWS + 1, 2), (topic * 13 + torch.arange(2)).flatten())


def main(steps: int = 150) -> tuple[float, float]:
    """Return P@1 of unseen rows, before and after training."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.EmbeddingBag(FEATURES, DIM, mode="mean"), nn.ReLU())
    loss = SampledSoftmaxLoss(DIM, LABELS, "lsh_embedding", loss="active_set", K=4, L=16, min_candidates=100)
    optimizers = [RowAdam(loss, lr=0.02), torch.optim.AdamW(encoder.parameters(), lr=0.02)]
    precision = []
    for step in range(steps + 1):
        features, labels = rows()
        if step in (0, steps):
            best = loss.predict(encoder(features))[:, None] == labels[1].view(ROWS, 2)
            precision.append(best.any(1).float().mean().item())
        loss(encoder(features), labels).loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        loss.after_step()  # hash tables follow the vectors
    return precision[0], precision[1]


if __name__ == "__main__":
    print("P@1 {:.1%} before, {:.1%} after".format(*main()))
