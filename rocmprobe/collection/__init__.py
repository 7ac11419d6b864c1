"""Results of many machines, combined into a table or static pages.

``sources`` finds the files, ``reading`` decodes them, and ``identity`` names their chips, stacks and
machines. ``store``, ``document`` and ``outliers`` build the table. ``submissions`` builds the content of
public pages. ``output`` writes the table, and ``pages`` writes HTML. ``bundle`` and ``packing`` make and
check the zip files in which users submit their results.
"""
