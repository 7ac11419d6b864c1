"""From a log and facts to causes."""
