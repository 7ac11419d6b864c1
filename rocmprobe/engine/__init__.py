"""A run: the plan, the questions put to processes, and the journal of what they answered."""
