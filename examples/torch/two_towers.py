"""Train two towers, on the other items of each batch: python examples/torch/two_towers.py"""

import torch
from torch import nn

from runner.torch import RowAdam, SampledSoftmaxLoss

USERS, ITEMS, DIM, BATCH = 1000, 3000, 16, 256


def likes(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw users and an item that each likes: users of one taste share some items, popular ones more often."""
    user = torch.randint(USERS, (count,))
    return user, (user % 20) * 150 + (torch.rand(count).square() * 30).long()


def main(steps: int = 300) -> tuple[float, float]:
    """Return the share of unseen likes among each user's ten best items, before and after training."""
    torch.manual_seed(0)
    tower = nn.Sequential(nn.Embedding(USERS, DIM), nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, DIM))
    counts = torch.bincount(likes(50_000)[1], minlength=ITEMS)
    loss = SampledSoftmaxLoss(DIM, ITEMS, "in_batch", correct_target=True, scale=10.0, class_counts=counts)
    optimizers = [RowAdam(loss, lr=0.02), torch.optim.AdamW(tower.parameters(), lr=0.02)]

    def recall() -> float:
        user, item = likes(2000)
        return (loss.predict(tower(user), k=10) == item[:, None]).any(1).float().mean().item()

    before = recall()
    for _ in range(steps):
        user, item = likes(BATCH)
        loss(tower(user), item).loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return before, recall()


if __name__ == "__main__":
    print("recall@10 {:.1%} before, {:.1%} after".format(*main()))
