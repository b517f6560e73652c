"""Integrations with other frameworks. Each needs the extra of its name, and no other module imports it."""
