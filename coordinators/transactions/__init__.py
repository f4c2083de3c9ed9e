"""The transaction coordinator: producer ids, its decisions (their heads say which files are pure), its markers."""
