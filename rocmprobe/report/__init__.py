"""Showing: pure functions of a run's results, for a browser, a CI service and a terminal."""

#: In the folder of a replay: the outcomes that it reports. It stands here since a replay needs pytest, and
#: rendering takes a sixth of a second less without.
DOCUMENT = "outcomes.json"
