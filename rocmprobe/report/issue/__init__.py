"""One failure as text for an issue tracker."""
