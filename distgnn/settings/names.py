"""Names that settings take as values."""

from __future__ import annotations

from typing import Literal

ModelName = Literal["sage", "gcn", "gat", "gatv2", "gin", "sgc", "appnp", "rgcn", "rsage", "own"]
Aggregator = Literal["mean", "gcn", "max", "pool"]
EdgeFeatures = Literal["auto", "use", "ignore"]
Degrees = Literal["in", "out-in"]
RelationNorm = Literal["relation", "all", "none"]
ActivationName = Literal["relu", "elu"]
NormName = Literal["none", "batch", "layer"]
JumpingName = Literal["none", "cat", "max", "last"]
DtypeName = Literal["fp32", "bf16"]
DecoderName = Literal["dot", "mlp"]
OptimizerName = Literal["adam", "adamw", "sgd", "kfac", "lbfgs"]
