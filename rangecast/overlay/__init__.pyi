from .broker import Broker as Broker
from .broker import Settings as Settings
