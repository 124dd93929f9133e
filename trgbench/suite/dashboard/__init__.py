"""The dashboard: asv's pages made to work without a network, and a front page that answers at a glance.

`publisher` is a plugin of asv's (asv.conf.json names it) and runs with every `asv publish`. At the top it
imports, besides asv, nothing heavy: every command of asv loads it.
"""
