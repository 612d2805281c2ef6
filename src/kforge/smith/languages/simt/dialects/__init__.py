"""The dialects of the SIMT languages. Each module here is one dialect: the module's name is the dialect's name, and its
constant `DIALECT` is the object."""
