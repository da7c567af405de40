from .batch import covered_by as covered_by
from .graph import Graph as Graph
