"""How the tables came to be, one revision a file; Alembic runs them, `schema` calls Alembic."""
