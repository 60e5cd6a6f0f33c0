"""Take every class on a device, with products of bf16 where a GPU has them."""

from typing import Literal

from runner.contracts import Everything
from runner.output.torch.layer import TorchLayer
from runner.samplers.full import Full, FullConfig


class TorchFull(Full):
    """The sampler that returns every class. ``sampler.products=auto`` is bf16 on a GPU, and float32 elsewhere."""

    def __init__(self, config: FullConfig, layer: TorchLayer) -> None:
        config.check_engine("torch")
        self._is_auto = config.products == "auto"
        takes_bf16 = config.products == "bf16" or (self._is_auto and layer.device.type == "cuda")
        products: Literal["float32", "bf16"] = "bf16" if takes_bf16 else "float32"
        self.everything = Everything(layer.num_classes, products)
