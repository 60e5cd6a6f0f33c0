"""What the families of data share: cards, downloads, tables of people, prepared folders and their checks."""
