"""Results of many machines, combined into a table or static pages.

``sources`` finds the files, ``reading`` decodes them, and ``identity`` identifies their chips, stacks and
machines. ``store``, ``document`` and ``outliers`` build the table, and ``output`` writes it. ``submissions``
builds the content of the public pages, and ``pages`` writes HTML. ``bundle`` and ``packing`` make and check
the zip files in which users submit their results.
"""
