"""Short trainings of real models with random weights, each a named case, for ``compatibility.py``.

    python benchmarks/real_models.py FILE NAME ...

The command trains the cases on the CPU, one after another, and writes a line of JSON for each: its name, and
its losses followed by the norm of its first gradient. If the bypass is installed, the line has the bypass's
counts of this process.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import types
from collections.abc import Iterator
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, Callable, Optional

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

STEPS = 3
BATCH, CLASSES = 4, 10

Losses = list[float]


def trained(
    model: nn.Module, loss_of: Callable[[], torch.Tensor], steps: int = STEPS, rate: float = 0.01
) -> Losses:
    """Return the loss of each step of SGD, followed by the norm of the first gradient."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    losses, norm = [], 0.0
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        if step == 0:
            gradients = [each.grad for each in model.parameters() if each.grad is not None]
            norm = float(torch.stack([each.double().norm() for each in gradients]).norm())
        optimizer.step()
        losses.append(loss.item())
    return [*losses, norm]


def classified(
    model: nn.Module,
    side: int,
    autocast: Optional[torch.dtype] = None,
    channels_last: bool = False,
    rate: float = 0.01,
) -> Losses:
    images, labels = torch.randn(BATCH, 3, side, side), torch.randint(CLASSES, (BATCH,))
    if channels_last:
        model, images = (each.to(memory_format=torch.channels_last) for each in (model, images))

    def loss() -> torch.Tensor:
        with torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
            return F.cross_entropy(model(images).float(), labels)

    return trained(model, loss, rate=rate)


def of_timm(name: str, side: int = 64, dtype: Optional[torch.dtype] = None, **options: Any) -> Losses:
    _stand_in_for_torchvision()
    import timm

    sized = {"img_size": side} if name.startswith("vit") else {}
    return classified(timm.create_model(name, num_classes=CLASSES, **sized), side, dtype, **options)


class UNet(nn.Module):
    """U-Net of Ronneberger et al. 2015 with batch norm, two levels, transposed convolutions and a dilated
    bottom."""

    def __init__(self, saved: bool = False) -> None:
        super().__init__()
        self.saved = saved
        self.down = nn.ModuleList([self._block(3, 16), self._block(16, 32)])
        self.bottom = self._block(32, 64, dilation=2)
        self.up = nn.ModuleList([nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)])
        self.merge = nn.ModuleList([self._block(64, 32), self._block(32, 16)])
        self.head = nn.Conv2d(16, 5, 1)

    @staticmethod
    def _block(inside: int, outside: int, dilation: int = 1) -> nn.Module:
        layers: list[nn.Module] = []
        for channels in (inside, outside):
            convolution = nn.Conv2d(channels, outside, 3, padding=dilation, dilation=dilation)
            layers += [convolution, nn.BatchNorm2d(outside), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, image: torch.Tensor, reentrant: bool = False) -> torch.Tensor:
        def run(block: nn.Module, value: torch.Tensor) -> torch.Tensor:
            return checkpoint(block, value, use_reentrant=reentrant) if self.saved else block(value)

        kept = []
        for block in self.down:
            image = run(block, image)
            kept.append(image)
            image = F.max_pool2d(image, 2)
        image = run(self.bottom, image)
        for widen, block in zip(self.up, self.merge):
            image = run(block, torch.cat([widen(image), kept.pop()], 1))
        result: torch.Tensor = self.head(image)
        return result


def segmented(
    dtype: Optional[torch.dtype] = None, saved: bool = False, reentrant: bool = False, traced: bool = False
) -> Losses:
    model: nn.Module = UNet(saved)
    images, labels = torch.randn(BATCH, 3, 64, 64, requires_grad=reentrant), torch.randint(5, (BATCH, 64, 64))
    call = partial(model, reentrant=reentrant)
    if traced:
        call = torch.jit.trace(model, images)

    def loss() -> torch.Tensor:
        with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            return F.cross_entropy(call(images).float(), labels)

    return trained(model, loss)


def compiled() -> Losses:
    model = UNet()
    program = torch.compile(model, backend="aot_eager")
    images, labels = torch.randn(BATCH, 3, 64, 64), torch.randint(5, (BATCH, 64, 64))
    return trained(model, lambda: F.cross_entropy(program(images), labels))


def denoised() -> Losses:
    from diffusers import DDPMScheduler, UNet2DModel

    model = UNet2DModel(
        sample_size=32, block_out_channels=(32, 64, 64), norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    images, noise, times = torch.randn(2, 3, 32, 32), torch.randn(2, 3, 32, 32), torch.tensor([10, 700])
    noisy = DDPMScheduler().add_noise(images, noise, times)
    return trained(model, lambda: F.mse_loss(model(noisy, times).sample, noise))


def denoised_by_text() -> Losses:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=16, block_out_channels=(32, 64), norm_num_groups=8, cross_attention_dim=24,
        attention_head_dim=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    latents, noise, text = torch.randn(2, 4, 16, 16), torch.randn(2, 4, 16, 16), torch.randn(2, 7, 24)
    return trained(model, lambda: F.mse_loss(model(latents, torch.tensor([3, 500]), text).sample, noise))


def autoencoded() -> Losses:
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        block_out_channels=(32, 64), norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip
    images = torch.randn(2, 3, 32, 32)
    return trained(model, lambda: F.mse_loss(model(images, sample_posterior=True).sample, images))


def _critic() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, 2, 1, groups=2), nn.Softplus(),
        nn.Conv2d(32, 1, 8),
    )  # fmt: skip


def penalised() -> Losses:
    """Train a Wasserstein GAN with gradient penalty (Gulrajani et al. 2017): the critic's double backward."""
    critic, generator = (
        _critic(),
        nn.Sequential(nn.ConvTranspose2d(8, 16, 8), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 4)),
    )
    real, seeds = torch.randn(BATCH, 3, 32, 32), torch.randn(BATCH, 8, 1, 1)

    def loss() -> torch.Tensor:
        made = generator(seeds)
        between = (0.3 * real + 0.7 * made).detach().requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = (slope.flatten(1).norm(dim=1) - 1).square().mean()
        return critic(made).mean() - critic(real).mean() + 10 * penalty

    return trained(nn.ModuleList([critic, generator]), loss)


def of_single_samples() -> Losses:
    """Train with per-sample gradients by ``torch.func``, as in differential privacy. Return squared norms."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2), nn.Flatten(), nn.Linear(1152, 5)
    )
    images, labels = torch.randn(BATCH, 3, 16, 16), torch.randint(5, (BATCH,))
    parameters = {name: each.detach() for name, each in model.named_parameters()}

    def loss(parameters: Any, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(torch.func.functional_call(model, parameters, (image[None],)), label[None])

    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    found = []
    for _ in range(STEPS):
        gradients = per_sample(parameters, images, labels)
        found.append(sum(float(each.double().square().sum()) for each in gradients.values()))
        parameters = {name: each - 0.1 * gradients[name].mean(0) for name, each in parameters.items()}
    return found


def _rank(rank: int, folder: str) -> None:
    torch.manual_seed(0)
    torch.distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    model = nn.parallel.DistributedDataParallel(UNet())
    torch.manual_seed(rank)
    images, labels = torch.randn(2, 3, 64, 64), torch.randint(5, (2, 64, 64))
    losses = trained(model, lambda: F.cross_entropy(model(images), labels))
    Path(folder, f"{rank}.json").write_text(json.dumps(losses), "utf-8")
    torch.distributed.destroy_process_group()


def distributed() -> Losses:
    """Train with DistributedDataParallel over gloo: two processes with separate batches."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, (folder,), nprocs=2)
        return [each for rank in range(2) for each in json.loads(Path(folder, f"{rank}.json").read_text())]


class Blurred(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Images that the loading worker convolves."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        image = torch.randn(3, 1, 32, 32, generator=torch.Generator().manual_seed(index))
        return F.conv2d(image, torch.full((1, 1, 5, 5), 0.04), padding=2)[:, 0]


def loaded() -> Losses:
    """Train from a DataLoader with two spawned workers that convolve."""
    loader = torch.utils.data.DataLoader(Blurred(), 4, num_workers=2, multiprocessing_context="spawn")
    batches: Iterator[torch.Tensor] = iter(loader)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 3, padding=1))

    def loss() -> torch.Tensor:
        batch = next(batches)
        return F.mse_loss(model(batch), batch)

    # Reading every batch lets the workers end by themselves.
    return trained(model, loss, steps=len(loader))


def quantised(fused: bool = True) -> Losses:
    """Train with fake quantisation around convolutions, fused with batch norm or not."""
    from torch.ao import quantization

    model = nn.Sequential(
        quantization.QuantStub(), nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3, groups=16), nn.BatchNorm2d(16), nn.ReLU(), nn.ConvTranspose2d(16, 5, 2, 2),
        quantization.DeQuantStub(),
    ).train()  # fmt: skip
    model.qconfig = quantization.get_default_qat_qconfig("x86")
    # A transposed weight has its channels in another dimension than the observers expect.
    model[7].qconfig = None
    if fused:
        quantization.fuse_modules_qat(model, [["1", "2", "3"], ["4", "5", "6"]], inplace=True)
    quantization.prepare_qat(model, inplace=True)
    images, labels = torch.randn(BATCH, 3, 32, 32), torch.randint(5, (BATCH, 56, 56))
    return trained(model, lambda: F.cross_entropy(model(images), labels))


_TIMM = (
    "resnet18", "resnext50_32x4d", "mobilenetv3_small_100", "efficientnet_b0", "ghostnet_100", "regnety_002",
    "convnext_atto", "repvgg_a0", "mobilevit_xxs", "vit_tiny_patch16_224",
)  # fmt: skip

#: By name: the training, and the dtype of its convolutions.
CASES: dict[str, tuple[Callable[[], Losses], str]] = {
    "segmentation U-Net": (segmented, "float32"),
    "segmentation U-Net, bf16 autocast": (partial(segmented, torch.bfloat16), "bfloat16"),
    "segmentation U-Net, fp16 autocast": (partial(segmented, torch.float16), "float16"),
    "segmentation U-Net, traced": (partial(segmented, traced=True), "float32"),
    "segmentation U-Net, torch.compile (aot_eager)": (compiled, "float32"),
    "activation checkpointing": (partial(segmented, saved=True), "float32"),
    "activation checkpointing, reentrant": (partial(segmented, saved=True, reentrant=True), "float32"),
    "diffusers UNet2DModel": (denoised, "float32"),
    "diffusers UNet2DConditionModel": (denoised_by_text, "float32"),
    "diffusers AutoencoderKL": (autoencoded, "float32"),
    "gradient penalty": (penalised, "float32"),
    "gradients of single samples": (of_single_samples, "float32"),
    "DDP, two gloo processes": (distributed, "float32"),
    "DataLoader, two spawned workers": (loaded, "float32"),
    "quantisation-aware, fused": (quantised, "float32"),
    "quantisation-aware, not fused": (partial(quantised, fused=False), "float32"),
    **{f"timm {name}": (partial(of_timm, name), "float32") for name in _TIMM},
    # With a first gradient of norm 446, steps of 0.01 turn rounding into 4e-4, even between native ways.
    "timm efficientnet_b0": (partial(of_timm, "efficientnet_b0", rate=1e-4), "float32"),
    "timm resnet18, channels-last": (partial(of_timm, "resnet18", channels_last=True), "float32"),
    "timm resnet18, bf16 autocast": (partial(of_timm, "resnet18", dtype=torch.bfloat16), "bfloat16"),
}  # fmt: skip


class _Named(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Named(name, (), {})


class _Absent(types.ModuleType):
    __path__: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Named(name, (), {})


def _stand_in_for_torchvision() -> None:
    """Install a stub for torchvision if it is missing.

    timm imports torchvision, but no model here uses it, and it does not have a build for every torch.
    """
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision"):
        return
    for name in (
        "", ".datasets", ".models", ".models.feature_extraction", ".ops", ".ops.misc", ".transforms",
        ".transforms.functional", ".utils",
    ):  # fmt: skip
        sys.modules["torchvision" + name] = module = _Absent("torchvision" + name)
        module.__spec__ = ModuleSpec(module.__name__, None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("cases", nargs="+", choices=CASES, metavar="NAME")
    options = parser.parse_args()
    bypass = sys.modules.get("rocmprobe.bypass")
    with options.file.open("w", encoding="utf-8") as file:
        for name in options.cases:
            torch.manual_seed(0)
            line: dict[str, Any] = {"case": name}
            if bypass:
                bypass.reset_status()
            try:
                line["losses"] = CASES[name][0]()
            except Exception as error:
                line["failed"] = f"{type(error).__name__}: {error}"[:400]
            if bypass:
                line["status"] = bypass.status()
            print(json.dumps(line), file=file, flush=True)


if __name__ == "__main__":
    main()
