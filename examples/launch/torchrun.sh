#!/usr/bin/env bash
# torchrun, for hosts without MPI; run it on every host.   torchrun.sh PARTS RUN NUM_RANKS [FLAGS...]
#
# NUM_RANKS is the number of all ranks, the same on every host.
# NUM_HOSTS=2 FIRST_HOST=node1 JOB=name   several hosts; FIRST_HOST is one of them
set -euo pipefail
parts=$1 run=$2 ranks=$3
shift 3
hosts=${NUM_HOSTS:-1}
if (( ranks % hosts )); then
  echo "torchrun.sh: $ranks ranks do not divide among $hosts hosts; change NUM_RANKS or NUM_HOSTS" >&2
  exit 2
fi
launch=(--nproc-per-node "$((ranks / hosts))" --max-restarts "${RESTARTS:-2}")
if (( hosts > 1 )); then
  launch+=(--nnodes "$hosts" --rdzv-backend c10d --rdzv-endpoint "${FIRST_HOST:?}:29400")
  launch+=(--rdzv-id "${JOB:-distgnn}")
else
  launch+=(--standalone)
fi
# With a shared store torch 2.13 cannot restart on several hosts.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
# Without the two dashes torchrun takes --run for an abbreviation of a flag of its own.
exec torchrun "${launch[@]}" --no-python -- distgnn train "$parts" --run "$run" --resume "$@"
