"""The checker of annotations that the import hook in ``conftest.py`` applies to every function of proximo."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
"""As beartype, but an int passes for a float (PEP 484's numeric tower)."""
