"""`make release`: the artefacts of a release, from the commit alone."""
