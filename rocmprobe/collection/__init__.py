"""Results of many machines: files are found, read, and combined into a table or static pages.

``sources`` finds files, ``reading`` decodes them, and ``identity`` names their chips, stacks and machines.
``store``, ``document`` and ``outliers`` build the table. ``submissions`` builds the content of public pages.
``pages`` and ``output`` write both. ``bundle`` and ``packing`` build and check the files of submitters.
"""
