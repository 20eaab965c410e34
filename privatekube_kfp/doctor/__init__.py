"""`privatekube doctor`: what is wrong with a cluster and its site settings, and what mends it.

Each module here looks at one part of a set-up. In each, a function that reads (the API server, an
object store, a registry) gathers facts, and another makes findings of them, without reading
anything. `examination` says in which order, so that one cause gives one finding.
"""
