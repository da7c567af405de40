from .board import Board as Board
from .messages import Message as Message
from .messages import Messages as Messages
from .objects import Object as Object
from .subscriber import Entry as Entry
from .subscriber import Interest as Interest
from .tables import Change as Change
