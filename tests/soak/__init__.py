"""Many short runs on a warm engine that is killed now and then: nothing is lost, nothing is doubled, memory stays flat."""
