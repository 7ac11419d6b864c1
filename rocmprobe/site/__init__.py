"""Static pages and JSON from bundles: one address for each chip and stack, made by script only
(docs/sharing-results.md)."""

from rocmprobe.site.writing import write_site

__all__ = ["write_site"]
