"""HTTP on both sides of the proxy: the client's and the service's."""
