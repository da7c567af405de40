"""merge: which subscriptions are redundant together, and what do they sum to?"""

from rangecast.merge.cells import Cells as Cells
from rangecast.merge.hybrid import Hybrid as Hybrid
from rangecast.merge.links import Links as Links
from rangecast.merge.projection import Subsets as Subsets
from rangecast.merge.projection import chosen_attributes as chosen_attributes
from rangecast.merge.ranges import Ranges as Ranges
from rangecast.merge.ranges import convert as convert
from rangecast.merge.table import Table as Table
