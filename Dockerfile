# An image for one process, for mpirun, and for examples/launch/mpijob.yaml:
#
#   docker build -t distgnn .
#   docker run --rm -v "$PWD:/data" distgnn distgnn train cora --run /data/run
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends g++ make \
  && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN python -m venv /opt/distgnn \
  && /opt/distgnn/bin/pip install --no-cache-dir -c /src/constraints.txt '/src[mpi,parquet,progress]'

FROM python:3.12-slim
# sshd is for Kubeflow's MPI operator, which starts ranks with it; libgomp is that of the kernels.
RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1 openssh-client \
  openssh-server && rm -rf /var/lib/apt/lists/* \
  && useradd --create-home --uid 1000 mpiuser \
  && printf 'Port 2222\nHostKey ~/.ssh/id_rsa\nPidFile ~/sshd.pid\nStrictModes no\n' \
  > /home/mpiuser/.sshd_config \
  && printf 'Port 2222\nStrictHostKeyChecking no\n' >> /etc/ssh/ssh_config
COPY --from=build /opt/distgnn /opt/distgnn
ENV PATH=/opt/distgnn/bin:$PATH
USER mpiuser
WORKDIR /home/mpiuser
CMD ["distgnn", "--help"]
