"""Results of many machines: found, read, and put into one table or on static pages.

``sources`` finds files, ``reading`` decodes them, and ``identity`` names their chips, stacks and machines.
``store``, ``document`` and ``outliers`` make the table, ``submissions`` makes the content of public pages.
``pages`` and ``output`` write both. ``bundle`` and ``packing`` make and check the files of submitters.
"""
