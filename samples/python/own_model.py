#!/usr/bin/env python3
"""A model of one's own: a small network built node by node, trained on two devices to tell the quadrants of a plane apart
(sign of x * y), which no linear model can; the twin of samples/c/own_model.c.

    own_model.py [DEVICES]
"""
import sys
from typing import Iterator

import tessera

BATCH, HIDDEN, STEPS = 64, 32, 300


def build() -> tessera.Graph:
    """loss = loss_scale * sum over the batch of (w2 tanh(w1 x + b1) - y)^2; B, the batch, is bound when training."""
    graph = tessera.Graph()
    batch = graph.symbol("B")
    x = graph.input("x", "f32", [batch, 2])
    y = graph.input("y", "f32", [batch, 1])
    scale = graph.input("loss_scale", "f32")  # the trainer feeds 1 / batch
    w1 = graph.parameter("w1", "f32", [2, HIDDEN])
    b1 = graph.parameter("b1", "f32", [HIDDEN])
    w2 = graph.parameter("w2", "f32", [HIDDEN, 1])
    hidden = graph.node("tanh", graph.node("add_bias", graph.node("matmul", x, w1), b1))
    out = graph.node("matmul", hidden, w2)
    square = graph.node("square", graph.node("sub", out, y))
    graph.output("out", out)
    graph.output("loss", graph.node("scale_by", graph.node("reduce_sum", square, axes=[0, 1]), scale))
    return graph


def coordinates() -> Iterator[float]:
    """Yields coordinates of pseudo-random points in [-1, 1)^2, the same on every machine."""
    state = 1
    while True:
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        yield (state >> 8) / (1 << 23) - 1


def train(devices: str) -> bool:
    model = tessera.Model.from_graph(build())
    trainer = tessera.Trainer(model, devices=devices, batch=BATCH, lr=0.02)
    x, y = tessera.Tensor.zeros("f32", [BATCH, 2]), tessera.Tensor.zeros("f32", [BATCH, 1])
    points, signs = memoryview(x), memoryview(y)  # their memory; with NumPy: numpy.asarray(x)
    coordinate, losses = coordinates(), []
    for i in range(STEPS):
        for row in range(BATCH):
            points[row, 0], points[row, 1] = next(coordinate), next(coordinate)
            signs[row, 0] = 1 if points[row, 0] * points[row, 1] > 0 else -1
        trainer.feed("x", x)
        trainer.feed("y", y)
        losses.append(trainer.step().loss)
        if i % 50 == 0:
            print(f"step {i + 1} loss {losses[-1]:.4f}")
    print(f"loss from {losses[0]:.4f} to {losses[-1]:.4f}")
    trainer.store(model)  # model now holds the trained w1, b1, w2
    return losses[-1] < losses[0] / 2


if __name__ == "__main__":
    try:
        sys.exit(0 if train(sys.argv[1] if len(sys.argv) > 1 else "cpu:2") else 1)
    except tessera.TesseraError as error:
        print(f"{error.code_name}: {error}", file=sys.stderr)
        sys.exit(1)
