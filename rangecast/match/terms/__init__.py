"""Selection of candidates by what their texts must have: terms, such as words and runs of bytes.

programs of words -> requirements (terms of which one must occur) -> anchors (the rarest of them)
                                                                          |
text of an event -> its terms -> postings -> signature -> words that match -> rows whose boxes match

A term is a hash: two that share one cost a comparison, never an answer.
"""
