from .cells import Cells as Cells
from .hybrid import Hybrid as Hybrid
from .links import Links as Links
from .projection import Subsets as Subsets
from .projection import chosen_attributes as chosen_attributes
from .ranges import Ranges as Ranges
from .ranges import convert as convert
from .table import Table as Table
