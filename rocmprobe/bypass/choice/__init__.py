"""Choice of the plan for a task: by a cost model, which a clear measurement overrules."""
