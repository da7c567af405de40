"""merge: which subscriptions are redundant together, and what do they sum to?"""

from rangecast.merge.cells import Cells as Cells
from rangecast.merge.ranges import Ranges as Ranges
from rangecast.merge.ranges import convert as convert
from rangecast.merge.table import Table as Table
