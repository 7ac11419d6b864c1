"""Results of many machines, combined into a table or static pages."""
