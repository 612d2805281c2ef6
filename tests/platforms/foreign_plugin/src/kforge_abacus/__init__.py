raise RuntimeError("finding a platform must not import its package")
