"""Results of many machines, combined into a table or static pages.

``sources`` finds the files, ``reading`` decodes them, and ``identity`` identifies their chips, stacks and
machines. ``bundle`` and ``packing`` make and check the zip files in which users submit their results.
"""
