#!/usr/bin/env bash
# Cora, cut into 4 parts, trained by 4 processes: the two commands of distgnn and what follows them.
#
#   examples/quickstart.sh [OUTPUT_DIRECTORY]      default: examples/out
#
# Takes the commands from $PYTHON_BIN_DIR, else from the .venv of this repository, else from $PATH.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:-$here/out}
bin=${PYTHON_BIN_DIR:-$here/../.venv/bin}
if [[ -d $bin ]]; then
  PATH=$(cd "$bin" && pwd):$PATH
fi
for command in distgnn mpirun; do
  if ! command -v "$command" > /dev/null; then
    echo "quickstart: there is no $command; run make install, or set PYTHON_BIN_DIR" >&2
    exit 2
  fi
done

launch=(mpirun -n 4)
if mpirun --version | grep -q "Open MPI"; then
  # It refuses root, and more ranks than cores, unless told otherwise.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  launch+=(--oversubscribe)
fi

show() {
  printf '\n$'
  printf ' %q' "$@"
  printf '\n'
  "$@"
}

mkdir -p "$out"
show distgnn partition cora --parts 4 --method metis --out "$out/cora-4" --overwrite
show "${launch[@]}" distgnn train "$out/cora-4" --run "$out/run" --overwrite \
  --model gcn --hidden 16 --feature-norm row --epochs 200 --checkpoint-every 50
show distgnn evaluate "$out/run"
show distgnn predict "$out/run" --out "$out/predictions.csv"

# Paths in here are shown as short as they can be typed.
shown=${out#"$PWD"/}
accuracy=$(distgnn evaluate "$out/run" --json | sed 's/.*"test_metric": \([0-9.]*\).*/\1/')
cat << END

test accuracy  $accuracy
partition      $shown/cora-4
run            $shown/run (metrics.jsonl, summary.json, model.safetensors, checkpoints)
predictions    $shown/predictions.csv
END
