from .board import Board as Board
from .given import Change as Change
from .messages import Message as Message
from .messages import Messages as Messages
from .subscriber import Interest as Interest
