"""Registration of rocmprobe's plugin, so that ``pytest suites/`` works in a checkout."""

pytest_plugins = ["rocmprobe.pytest_plugin"]
