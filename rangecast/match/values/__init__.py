"""Value lists: an event reads the subscriptions that ask for its value of one attribute."""
