#!/usr/bin/env bash
# MPICH, one rank per socket.   mpich.sh PARTS RUN NUM_RANKS [FLAGS OF TRAIN...]
#
# HOSTFILE=FILE    several hosts, a line each: "node1:2"; without it this one
# INTERFACE=eth0   the network between them
# BIND="-bind-to none"   on a laptop
set -euo pipefail
parts=$1 run=$2 ranks=$3
shift 3
read -ra launch <<< "${BIND:--bind-to socket}"
if [[ -n ${HOSTFILE:-} ]]; then
  launch+=(-f "$HOSTFILE" -iface "${INTERFACE:-eth0}")
  set -- "$@" --interface "${INTERFACE:-eth0}"
fi
# Else Hydra kills the ranks that live at once; so they have a moment to say which one died.
launch+=(-disable-auto-cleanup)
exec mpirun -n "$ranks" "${launch[@]}" distgnn train "$parts" --run "$run" --resume "$@"
