"""Versions of subscriptions, packed: a million of them take a tenth of their size as objects.

packed    records in compressed blocks, each under the place at which it was added
names     numbers of names
ids       ids by number, as JSON
version   one version of a subscription
live      the current versions of a space: names -> numbers -> places
owned     all versions of a consumer that the log still has events for: their places
"""
