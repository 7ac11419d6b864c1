"""Isolation: one child per trial, budgets, capture, locks, the journal."""
