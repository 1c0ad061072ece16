"""The demo's job: chooses and trains a small network for handwritten digits, inside a lease.

Four networks are compared by five-fold cross-validation; the best is trained on all that it may
see and tested once. Needs numpy and nothing of this package. Same seed, data and numpy: same
weights, to the last bit on one kind of processor. Data: the UCI digits (1,797 images of 8 x 8),
as scikit-learn ships them.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Digits = NDArray[np.int64]
BATCH = 32
FOLDS = 5
HELD_OUT = 360
"""Images that are only tested on, once, at the end: one in five."""
CANDIDATES = ((32, 0.05), (96, 0.02), (96, 0.05), (96, 0.2))
"""Hidden units and step size to choose from."""


def load(path: Path, order: np.random.Generator) -> tuple[Floats, NDArray[np.int64]]:
    """Images as rows of 64 values from 0 to 1, and their digits, in a random order."""
    with gzip.open(path, "rt") as lines:
        table = np.loadtxt(lines, delimiter=",")
    table = table[order.permutation(len(table))]
    return table[:, :64] / 16.0, table[:, 64].astype(np.int64)


class Network:
    """64 -> hidden (ReLU) -> 10 (softmax), plain stochastic gradient descent."""

    def __init__(self, hidden: int, start: np.random.Generator) -> None:
        self.w1 = start.normal(0, np.sqrt(2 / 64), (64, hidden))
        self.b1 = np.zeros(hidden)
        self.w2 = start.normal(0, np.sqrt(2 / hidden), (hidden, 10))
        self.b2 = np.zeros(10)

    def forward(self, images: Floats) -> tuple[Floats, Floats]:
        """Hidden activations and the probability of each digit."""
        hidden = np.maximum(images @ self.w1 + self.b1, 0)
        scores = hidden @ self.w2 + self.b2
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, powers / powers.sum(axis=1, keepdims=True)

    def learn(self, images: Floats, digits: Digits, rate: float) -> float:
        """One step; returns the mean cross-entropy before it."""
        hidden, chance = self.forward(images)
        rows = np.arange(len(digits))
        loss = -float(np.log(chance[rows, digits] + 1e-12).mean())
        slope = chance.copy()
        slope[rows, digits] -= 1
        slope /= len(digits)
        back = (slope @ self.w2.T) * (hidden > 0)
        self.w2 -= rate * hidden.T @ slope
        self.b2 -= rate * slope.sum(axis=0)
        self.w1 -= rate * images.T @ back
        self.b1 -= rate * back.sum(axis=0)
        return loss

    def accuracy(self, images: Floats, digits: Digits) -> float:
        """Share of images whose likeliest digit is theirs."""
        return float((self.forward(images)[1].argmax(axis=1) == digits).mean())


def trained(
    images: Floats, digits: Digits, setting: tuple[int, float], epochs: int, seed: int
) -> tuple[Network, float]:
    """A network and its loss over the last epoch."""
    hidden, rate = setting
    generator = np.random.default_rng(seed)
    network, loss = Network(hidden, generator), 0.0
    for _ in range(epochs):
        order = generator.permutation(len(images))
        steps = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        loss = sum(network.learn(images[rows], digits[rows], rate) for rows in steps) / len(steps)
    return network, loss


def cross_validated(
    images: Floats, digits: Digits, setting: tuple[int, float], epochs: int, seed: int
) -> float:
    """Mean accuracy on the fold that was left out, over all folds."""
    fold_of = np.arange(len(images)) % FOLDS
    reached = []
    for fold in range(FOLDS):
        kept = fold_of != fold
        network, _ = trained(images[kept], digits[kept], setting, epochs, seed + fold)
        reached.append(network.accuracy(images[~kept], digits[~kept]))
    return float(np.mean(reached))


def train(data: Path, epochs: int, seed: int, out: Path) -> dict[str, float | int]:
    """Choose, train, test; writes the weights and returns what was reached."""
    images, digits = load(data, np.random.default_rng(seed))
    seen, held = slice(HELD_OUT, None), slice(0, HELD_OUT)
    reached = {}
    for setting in CANDIDATES:
        reached[setting] = cross_validated(images[seen], digits[seen], setting, epochs, seed)
        print(
            f"hidden {setting[0]:3d}  step {setting[1]:.2f}  accuracy {reached[setting]:.4f}",
            flush=True,
        )
    best = max(CANDIDATES, key=lambda setting: reached[setting])
    network, loss = trained(images[seen], digits[seen], best, epochs, seed)
    accuracy = network.accuracy(images[held], digits[held])
    print(f"chosen: hidden {best[0]}, step {best[1]}; on {HELD_OUT} new images: {accuracy:.4f}")
    out.mkdir(exist_ok=True)
    np.savez(out / "weights.npz", w1=network.w1, b1=network.b1, w2=network.w2, b2=network.b2)
    return {
        "accuracy": round(accuracy, 4),
        "cross_validated": round(reached[best], 4),
        "loss": round(loss, 6),
        "hidden": best[0],
        "step": best[1],
        "epochs": epochs,
        "seed": seed,
        "tested_on": HELD_OUT,
    }


def main() -> None:
    """Read the command line, train, write out/result.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out"))
    given = parser.parse_args()
    reached = train(given.data, given.epochs, given.seed, given.out)
    (given.out / "result.json").write_text(json.dumps(reached) + "\n")


if __name__ == "__main__":
    main()
