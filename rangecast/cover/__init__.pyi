from .batch import covered_by as covered_by
from .coverset import CoverSet as CoverSet
