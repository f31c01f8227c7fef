"""Planning: derives the work from declarations and inspected state; changes nothing."""
