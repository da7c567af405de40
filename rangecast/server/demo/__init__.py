"""Examples that a server publishes to itself: `rangecast serve --demo`.

market   saved searches, and quotes that come in
fleet    vehicles that drive through a city, and geofences: `city` has both
"""
