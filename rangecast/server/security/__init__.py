"""TLS, trusted authorities, host names, and the permissions of the data folder."""
