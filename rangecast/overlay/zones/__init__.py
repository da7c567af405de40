"""The network by zones: the space of interests, split into zones with one broker each.

geometry (cuts of a zone, routes) -> territory (zones change hands) -> broker -> simulate
                                  \\-> zonemap (a static network, split by load) -> traffic
"""
