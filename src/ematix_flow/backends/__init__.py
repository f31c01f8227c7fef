"""One folder a system; the manifests are found here."""
