# ZooKeeper from Debian's own package, for machines that cannot reach a registry of images; else take zookeeper:3.8.
ARG BASE=debian:12-slim
FROM ${BASE}
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends zookeeper \
 && rm -rf /var/lib/apt/lists/* \
 && mkdir --parents /data /conf && chown zookeeper:zookeeper /data \
 && printf '%s\n' tickTime=2000 dataDir=/data clientPort=2181 admin.enableServer=false > /conf/zoo.cfg
USER zookeeper
VOLUME /data
EXPOSE 2181
ENTRYPOINT ["/usr/share/zookeeper/bin/zkServer.sh", "start-foreground", "/conf/zoo.cfg"]
