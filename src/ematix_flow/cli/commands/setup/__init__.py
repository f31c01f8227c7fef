"""Commands about the installation: connections, secrets, backends, engine, cluster, doctor, version."""
