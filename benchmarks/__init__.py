"""The asv suite: one file for each question; README.md says how it measures and how to add to it."""
