"""The report of a study: one document of tables and figures, written as a page, as Markdown and as CSV."""
