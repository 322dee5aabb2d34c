"""Train a GCN on Cora, predict every vertex, and embed it.

python examples/quick.py [RUN]      default: examples/out/quick
"""

import sys
from pathlib import Path

import distgnn as dg

out = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "out" / "quick"
run = dg.train("cora", model="gcn", hidden=16, epochs=200, out=out, overwrite=True)
print(run)
print(run.test_metric, run.predict().shape, run.embed().shape)
