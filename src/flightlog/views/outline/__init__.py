"""The outline of a session: its shape (`shape`), made record by record (`fold`)."""
