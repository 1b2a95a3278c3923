"""The demo model: fetched once, converted, kept in the cache."""
