#!/usr/bin/env bash
# Intel MPI, one rank per socket.   intelmpi.sh PARTS RUN NUM_RANKS [FLAGS OF TRAIN...]
#
# HOSTFILE=FILE    several hosts, a line each: "node1:2"; without it this one
# INTERFACE=eth0   the network between them
# BIND="-genv I_MPI_PIN 0"   on a laptop
set -euo pipefail
parts=$1 run=$2 ranks=$3
shift 3
read -ra launch <<< "${BIND:--genv I_MPI_PIN_DOMAIN socket}"
if [[ -n ${HOSTFILE:-} ]]; then
  launch+=(-f "$HOSTFILE" -iface "${INTERFACE:-eth0}")
  set -- "$@" --interface "${INTERFACE:-eth0}"
fi
exec mpirun -n "$ranks" "${launch[@]}" distgnn train "$parts" --run "$run" --resume "$@"
