from .broker import Broker as Broker
from .broker import Settings as Settings
from .zones.broker import ZoneBroker as ZoneBroker
from .zones.server import ZoneServer as ZoneServer
from .zones.simulate import ZoneSimulation as ZoneSimulation
