#!/usr/bin/env bash
# Open MPI, one rank per socket.   openmpi.sh PARTS RUN NUM_RANKS [FLAGS OF TRAIN...]
#
# HOSTFILE=FILE    several hosts, a line each: "node1 slots=2"; without it this one
# INTERFACE=eth0   the network between them
# BIND="--oversubscribe --bind-to none"   on a laptop; as root also OMPI_ALLOW_RUN_AS_ROOT=1
#                                         and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
set -euo pipefail
parts=$1 run=$2 ranks=$3
shift 3
read -ra launch <<< "${BIND:---map-by ppr:1:socket --bind-to socket}"
if [[ -n ${HOSTFILE:-} ]]; then
  launch+=(--hostfile "$HOSTFILE" --mca btl_tcp_if_include "${INTERFACE:-eth0}")
  set -- "$@" --interface "${INTERFACE:-eth0}"
fi
# Open MPI hands on only the variables that it is told to.
for name in OMP_NUM_THREADS MASTER_ADDR; do
  if [[ -n ${!name:-} ]]; then
    launch+=(-x "$name")
  fi
done
exec mpirun -n "$ranks" "${launch[@]}" distgnn train "$parts" --run "$run" --resume "$@"
