"""Secret stores: resolvers of `${vault:…}`, `${aws:…}`, `${gcp:…}` and `${file:…}`."""
