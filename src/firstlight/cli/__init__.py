"""The commands, one file each; every heavy import happens inside the command that needs it."""
