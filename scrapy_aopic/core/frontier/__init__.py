"""Mercator's frontier: which host is asked next, and for which of its pages."""
