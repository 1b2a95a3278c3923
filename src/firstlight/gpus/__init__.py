"""The only one who asks GPU drivers: cheaply while a server is watched, and once in full for a look."""
