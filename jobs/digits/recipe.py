"""A small convolutional VAE on the 1,797 digits that scikit-learn ships: 8x8 pixels, one grey channel."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from raykit import Draws, Field, Image, LossTerm


class Digits:
    deterministic = True  # __getitem__ draws nothing at random

    def __init__(self) -> None:
        digits = load_digits()
        self.images = torch.tensor(digits.images[:, None], dtype=torch.float32) / 8 - 1  # paper -1, ink 1
        self.ids = [f"digit-{number:04d}" for number in range(len(self.images))]
        self.strata = [str(label) for label in digits.target]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        return self.images[index]


class Vae(nn.Module):
    def __init__(self, width: int, latent: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1), nn.SiLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.SiLU(),
            nn.Flatten(), nn.Linear(8 * width, 2 * latent),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Linear(latent, 8 * width), nn.SiLU(), nn.Unflatten(1, (2 * width, 2, 2)),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1), nn.SiLU(),
            nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1),
        )  # fmt: skip

    def forward(self, images: Tensor, given: Mapping[str, Tensor] = {}) -> tuple[Tensor, Tensor, Tensor]:
        """The images drawn again from latents, and the mean and scale that those were sampled with."""
        mean, log_scale = self.encoder(images).chunk(2, dim=1)
        mean, scale = given.get("code", mean), given.get("latent", log_scale.exp())
        return self.decoder(mean + scale * torch.randn_like(scale)), mean, scale


class DigitsVae:
    @dataclass
    class Params:
        width: int = 32
        latent: int = 8
        lr: float = 1e-3
        beta: float = 0.05  # weight of a latent's kl against a pixel's squared error

    proposes = {  # what `raykit plan new` writes as lines marked (r)
        "splits": {"group": "content", "train": 0.70, "development": 0.15, "report_only": 0.15},
        "run": {"batch": 64, "checkpoint_every": 200, "select": "min development.ratio"},
        "qc": {
            "every": 200,
            "roster": {"stratum": "label", "units": 20},
            "fields": {
                "latent": {"space": "log", "low": 5, "high": 95, "collapse": 0.2},
                "code": {"space": "linear", "low": 5, "high": 95, "collapse": 0.2},
            },
            "on_failure": "continue",
        },
    }

    def model(self, params: Params) -> Vae:
        self.beta = params.beta
        return Vae(params.width, params.latent)

    def optimizer(self, model: nn.Module, params: Params) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=params.lr)

    def dataset(self, source: object, params: Params) -> Digits:
        return Digits()

    def losses(self, model: nn.Module, images: Tensor) -> dict[str, LossTerm]:
        return self.losses_given(model, images, {})

    def losses_given(
        self, model: nn.Module, images: Tensor, fields: Mapping[str, Tensor]
    ) -> dict[str, LossTerm]:
        drawn, mean, scale = model(images, fields)
        kl = (mean**2 + scale**2 - 1) / 2 - scale.log()
        return {
            "recon": LossTerm(value=(drawn - images).square().mean(), target=images),
            "kl": LossTerm(
                value=kl.mean(),
                weight=self.beta,
                elements=kl.numel(),
                no_reference="a distance between distributions; latents that say nothing score 0, not 1",
            ),
        }

    def fields(self, model: nn.Module, images: Tensor) -> dict[str, Field]:
        """Latents that say nothing have the same scale for every image: the spread of its logarithm is 0."""
        _, mean, scale = model(images)
        return {"latent": Field(value=scale, space="log"), "code": Field(value=mean)}

    def evaluate(self, model: nn.Module, images: Tensor) -> dict[str, Tensor]:
        drawn, _, _ = model(images)
        return {"mse": (drawn - images).square().mean(dim=(1, 2, 3))}

    def panels(self, model: nn.Module, images: Tensor) -> dict[str, Image]:
        drawn, _, _ = model(images)
        return {"input": Image(value=images[0, 0], low=-1), "drawn": Image(value=drawn[0, 0], low=-1)}

    # --- synthetic digits ------------------------------------------------------------------------

    normalization = {"image": {"low": 0.0, "high": 16.0, "shape": [8, 8]}}  # as scikit-learn has them

    def generate(self, model: Vae, inputs: pa.Table, rng: Draws, temperature: float = 1.0) -> pa.Table:
        """Digits from the prior: latents are sampled, and drawn in whole grey levels."""
        first = model.decoder[0]
        latent = torch.from_numpy(rng.normal(first.in_features)).to(first.weight) * temperature
        grey = ((model.decoder(latent) + 1) * 8).round().clamp(0, 16)
        return pa.table({"image": list(grey.flatten(1).float().cpu().numpy())})

    def quality(self, table: pa.Table, real: list[Tensor]) -> dict[str, float]:
        """How far a made digit is from the nearest real one, in grey levels of a pixel, and how many real ones are the
        nearest of some made one."""
        made = torch.tensor(table["image"].to_pylist())
        apart = torch.cdist(made, (torch.stack(real).flatten(1) + 1) * 8) / 8
        distance, nearest = apart.min(dim=1)
        return {
            "distance": distance.median().item(),
            "coverage": nearest.unique().numel() / len(real),
        }

    def picture(self, table: pa.Table) -> list[Image]:
        images = torch.tensor(table["image"].to_pylist()).unflatten(1, (8, 8))
        return [Image(value=image, high=16) for image in images]
