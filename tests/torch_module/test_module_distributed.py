"""Two processes under DistributedDataParallel get the gradients of one that has both batches."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROGRAM = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from runner.torch import SampledSoftmaxLoss

class Model(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Linear(8, 8)
        self.loss = SampledSoftmaxLoss(8, 50, num_samples=20, sparse=sparse)

    def forward(self, hidden, target):
        return self.loss(self.encoder(hidden), target).loss

def batches(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(16, 8, generator=generator), torch.randint(50, (16,), generator=generator)

def train(model, part, sparse):
    loss = model.module.loss if hasattr(model, "module") else model.loss
    encoder = model.module.encoder if hasattr(model, "module") else model.encoder
    make = torch.optim.SparseAdam if sparse else torch.optim.AdamW
    optimizers = [make(loss.parameters(), lr=0.01), torch.optim.AdamW(encoder.parameters(), lr=0.01)]
    for step in range(4):
        hidden, target = (values[part] for values in batches(step))
        model(hidden, target).backward()
        assert loss.rows.weight.grad.is_sparse == sparse
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert int(loss.step) == 4
    return [parameter.detach().clone() for parameter in model.parameters()]

rank, port = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
for sparse in (True, False):
    found = train(DistributedDataParallel(Model(sparse)), slice(8 * rank, 8 * rank + 8), sparse)
    expected = train(Model(sparse), slice(16), sparse)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-4)
dist.destroy_process_group()
print("done")
"""


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    if not torch.distributed.is_available():
        pytest.skip("this torch has no distributed package")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    command = [sys.executable, "-W", "ignore", str(file)]
    root = Path(__file__).parents[2]
    processes = [
        subprocess.Popen([*command, str(rank), str(port)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
        for rank in range(2)
    ]  # fmt: skip
    for process in processes:
        said, _ = process.communicate(timeout=240)
        assert process.returncode == 0, said
        assert said.endswith("done\n")
