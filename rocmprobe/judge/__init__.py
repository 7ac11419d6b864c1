"""Judgement of a run, from outcomes to findings to a recommendation. All functions are pure."""
