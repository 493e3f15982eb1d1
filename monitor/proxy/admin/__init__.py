"""The pages of the proxy for its operators."""
