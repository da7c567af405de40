from .commits import read_committed as read_committed
from .edits import Edits as Edits
from .history import History as History
from .versions import Versions as Versions
