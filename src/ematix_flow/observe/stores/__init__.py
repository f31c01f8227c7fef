"""Secret stores: what answers `${vault:…}`, `${aws:…}`, `${gcp:…}` and `${file:…}`."""
