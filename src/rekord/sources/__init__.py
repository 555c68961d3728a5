"""Raw data as rows: image folders, annotations, tables, texts, records, and the datasets of other libraries."""
