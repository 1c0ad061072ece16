"""One trial of the demo's sweep: trains a small network for handwritten digits, inside a lease.

Learns from three fifths of the images, is judged on one fifth, so that the sweep can choose, and
on a last fifth that nothing was chosen by. Needs numpy and nothing of this package. Same words,
data and numpy: same result, to the last bit on one kind of processor. Data: the UCI digits (1,797
images of 8 x 8), as scikit-learn ships them.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Digits = NDArray[np.int64]
BATCH = 32
FIFTH = 360


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

    def digest(self) -> str:
        """SHA-256 of all weights: two networks are the same or they are not."""
        whole = hashlib.sha256()
        for weights in (self.w1, self.b1, self.w2, self.b2):
            whole.update(weights.tobytes())
        return whole.hexdigest()


def trained(
    images: Floats, digits: Digits, hidden: int, rate: float, epochs: int, seed: int
) -> tuple[Network, float]:
    """A network and its loss over the last epoch."""
    generator = np.random.default_rng(seed)
    network, loss = Network(hidden, generator), 0.0
    for epoch in range(epochs):
        order = generator.permutation(len(images))
        steps = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        loss = sum(network.learn(images[rows], digits[rows], rate) for rows in steps) / len(steps)
        if epoch % 20 == 0:
            print(f"epoch {epoch:3d}  loss {loss:.4f}", flush=True)
    return network, loss


def main() -> None:
    """Read the command line, train, write OUT/result.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--hidden", type=int, required=True)
    parser.add_argument("--step", type=float, required=True)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out"))
    given = parser.parse_args()
    images, digits = load(given.data, np.random.default_rng(given.seed))
    tested, judged, seen = slice(0, FIFTH), slice(FIFTH, 2 * FIFTH), slice(2 * FIFTH, None)
    network, loss = trained(
        images[seen], digits[seen], given.hidden, given.step, given.epochs, given.seed
    )
    reached = {
        "validated": round(network.accuracy(images[judged], digits[judged]), 4),
        "accuracy": round(network.accuracy(images[tested], digits[tested]), 4),
        "loss": round(loss, 6),
        "weights": network.digest(),
    }
    given.out.mkdir(exist_ok=True)
    (given.out / "result.json").write_text(json.dumps(reached) + "\n")


if __name__ == "__main__":
    main()
