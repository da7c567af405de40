"""cover: which subscriptions are redundant, one by one?"""

from rangecast.cover.batch import covered_by as covered_by
from rangecast.cover.graph import Graph as Graph
