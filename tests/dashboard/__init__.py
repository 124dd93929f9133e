"""The tests of the dashboard share a site that is published once; see conftest.py."""
