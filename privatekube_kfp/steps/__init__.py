"""What the components do when they run: nothing here knows kfp.

An artifact is whatever has a `path`, a `uri` and `metadata`. A step that fails ends in one sentence
with its reason, the last line of its log.
"""
